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

    A model writes to namespaces of the session only.  The tool reaches neither the session's private keys, nor shared
    or `temp:` state, nor another session.
    """

    def __init__(self, session: Session | None = None) -> None:
        """For `session`, or, without one, for the session that is ambient at each call (see `current_session`).

        Under a run lease, pass the session that the lease returned: then what the model writes is fenced.

        Raises:
            ConfigurationError: `session` is not a session of this API.
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
        """The description of the tool for function calling: `name`, `description` and `parameters` (a JSON schema); a
        new dict."""
        return schema()

    async def call(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Do what a model asks for; the reply, as plain JSON.

        It has ``value`` (get: a text, or None), ``ok`` (set: True), ``deleted`` (delete: whether the key existed;
        clear: how many keys there were) or ``entries`` (list: dicts of ``key`` and ``value``; with ``damaged``, the
        keys that cannot be read, if any).  It may raise what the calls of a namespace raise, too.

        Raises:
            InvalidNameError: An argument that is a name is wrong, missing or unknown (`.path`: which); nothing was
                done.
            InvalidValueError: Another argument is wrong or missing (`.path`: which); nothing was done.
            NoSessionError: No session is bound, neither to the tool nor here.
        """
        request = parse(arguments)
        session = current_session() if self._session is None else self._session
        _check_asynchronous(session)
        return await self._calls.run(session, request)

    async def reply(self, arguments: Mapping[str, Any] | str) -> str:
        """The answer to a model: the reply to its arguments (which may be JSON text) as JSON text.

        Errors that the model can do something about, or has to know of, become ``{"error": …}``, without values.
        Others end its run and are raised.

        Raises:
            NoSessionError: No session is bound, neither to the tool nor here.
            StaleLeaseError: The session is held under a run lease, which was lost.
            ConfigurationError: The settings, the session or the tiers do not fit together.
            SchemaVersionError: The schema of the database is not the one that this version needs.
        """
        try:
            return as_text(await self.call(from_text(arguments)))
        except SessionCacheError as error:
            return as_error(error)


class Calls:
    """Carries calls out, and keeps the handles of the namespaces that were used last.

    A handle that is used again finds out which of its writes became durable; new handles all the time would pile up
    records of unflushed writes.
    """

    def __init__(self) -> None:
        self._namespaces: WeakKeyDictionary[Any, dict[str, Namespace]] = WeakKeyDictionary()

    async def run(self, session: Session, request: ToolCall) -> dict[str, Any]:
        """The reply to a call, as plain JSON."""
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
    """An error as explained to a model, as JSON text; raises one that is for the program."""
    told = explanation(error)
    if told is None:
        raise error
    return as_text({"error": told})


def schema() -> dict[str, Any]:
    """The description of the tool that a model gets."""
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
