"""The agent tool: a model keeps texts in namespaces of its session, by one function with five operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from sessioncache.current import current_session
from sessioncache.errors import ConfigurationError, SessionCacheError
from sessioncache.tool.arguments import OPERATIONS, ToolCall, from_text, parse
from sessioncache.tool.replies import as_text, explanation, shown

if TYPE_CHECKING:
    from sessioncache.namespace import Namespace
    from sessioncache.session import Session

NAME = "session_state"

_DESCRIPTION = """\
A memory that lasts for this conversation. It holds texts, each under a namespace and a key; namespaces are apart \
from each other, and come into being with their first key. Operations: get (the value of a key, null if there is \
none), set (store a value under a key), delete (remove a key), list (all keys of a namespace with their values), clear \
(remove all keys of a namespace)."""
_MOST_NAMESPACES = 16
_ABSENT = object()


class SessionStateTool:
    """The tool ``session_state`` for function calling, bound to a session by the program: no argument can name one.

    What a model writes lies in namespaces of the session: beside its plain keys, which the tool does not reach, nor
    shared or `temp:` state, nor another session.
    """

    def __init__(self, session: Session | None = None) -> None:
        """For `session`, or, without one, for the session that is ambient at each call (see `current_session`).

        Under a run lease, give it the session that the lease gave: then what the model writes is fenced.
        ConfigurationError for what is no session of this API.
        """
        if session is not None:
            _check_asynchronous(session)
        self._session = session
        self._calls = Calls()

    @property
    def name(self) -> str:
        """``session_state``, as models call it."""
        return NAME

    @property
    def schema(self) -> dict[str, Any]:
        """`name`, `description` and `parameters` (a JSON schema), as models are told of functions; a new dict."""
        return schema()

    async def call(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Do what a model asks for; the reply, as plain JSON.

        InvalidNameError or InvalidValueError (`.path`: the argument) for wrong, missing or unknown arguments: nothing
        was done then.  NoSessionError where no session is ambient; and what the calls of a namespace raise.
        """
        request = parse(arguments)
        session = current_session() if self._session is None else self._session
        _check_asynchronous(session)
        return await self._calls.run(session, request)

    async def reply(self, arguments: Mapping[str, Any] | str) -> str:
        """What to answer a model: the reply to its arguments (which may be JSON text) as JSON text.

        Errors that the model can do something about, or has to know of, become ``{"error": …}``, without values.
        Others end its run and are raised: NoSessionError, StaleLeaseError, ConfigurationError, SchemaVersionError.
        """
        try:
            return as_text(await self.call(from_text(arguments)))
        except SessionCacheError as error:
            return as_error(error)


class Calls:
    """Carries requests out, and keeps the handles of the namespaces that were used last.

    One that is used again knows which of its writes became durable meanwhile; new ones all the time would add up.
    """

    def __init__(self) -> None:
        self._namespaces: WeakKeyDictionary[Any, dict[str, Namespace]] = WeakKeyDictionary()

    async def run(self, session: Session, request: ToolCall) -> dict[str, Any]:
        """The reply to a request, as plain JSON."""
        space, key = self._namespace(session, request.namespace), request.key
        match request.operation:
            case "get":
                value = await space.get(key, _ABSENT)
                return {"value": None if value is _ABSENT else shown(value)}
            case "set":
                await space.set(key, request.value)
                return {"ok": True}
            case "delete":
                return {"deleted": await space.delete(key)}
            case "list":
                values, damaged = await space.readable_items()
                entries = [{"key": name, "value": shown(value)} for name, value in values.items()]
                return {"entries": entries, **({"damaged": damaged} if damaged else {})}
            case _:
                return {"deleted": await space.clear()}

    def _namespace(self, session: Session, name: str) -> Namespace:
        known = self._namespaces.setdefault(session, {})
        space = known.pop(name, None) or session.namespace(name)
        known[name] = space
        if len(known) > _MOST_NAMESPACES:
            del known[next(iter(known))]
        return space


def as_error(error: SessionCacheError) -> str:
    """What a model is told of an error, as JSON text; raises one that is for the program."""
    told = explanation(error)
    if told is None:
        raise error
    return as_text({"error": told})


def schema() -> dict[str, Any]:
    """What a model is told of the tool."""
    text = {"type": "string"}
    properties = {
        "operation": {**text, "enum": list(OPERATIONS), "description": "What to do."},
        "namespace": {**text, "description": "The namespace to work in; any name."},
        "key": {**text, "description": "The key; for get, set and delete."},
        "value": {**text, "description": "The text to store; for set."},
    }
    required = ["operation", "namespace"]
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"name": NAME, "description": _DESCRIPTION, "parameters": parameters}


def _check_asynchronous(session: object) -> None:
    if type(session).__module__.startswith("sessioncache.sync"):
        raise ConfigurationError("this session is of the API without async: use sessioncache.sync.SessionStateTool")
    if not callable(getattr(session, "namespace", None)):
        raise ConfigurationError(f"a session is needed, not {type(session).__name__}")
