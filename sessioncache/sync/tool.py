"""The agent tool for programs without async."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sessioncache.errors import ConfigurationError, SessionCacheError
from sessioncache.sync.likeness import like
from sessioncache.sync.portal import portal
from sessioncache.sync.session import Session, current_session
from sessioncache.tool import state_tool as asynchronous
from sessioncache.tool.arguments import from_text, parse
from sessioncache.tool.replies import as_text


class SessionStateTool:
    """The tool ``session_state`` for function calling, bound to a session by the program: no argument can name one.

    A model writes to namespaces of the session only.  The tool reaches neither the session's private keys, nor shared
    or `temp:` state, nor another session.
    """

    @like(asynchronous.SessionStateTool.__init__)
    def __init__(self, session: Session | None = None) -> None:
        self._session = None if session is None else _checked(session)
        self._calls = asynchronous.Calls()

    @property
    @like(asynchronous.SessionStateTool.name)
    def name(self) -> str:
        return asynchronous.NAME

    @property
    @like(asynchronous.SessionStateTool.schema)
    def schema(self) -> dict[str, Any]:
        return asynchronous.schema()

    @like(asynchronous.SessionStateTool.call)
    def call(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        request = parse(arguments)
        session = _checked(current_session() if self._session is None else self._session)
        return portal().call(self._calls.run(session._async, request))

    @like(asynchronous.SessionStateTool.reply)
    def reply(self, arguments: Mapping[str, Any] | str) -> str:
        try:
            return as_text(self.call(from_text(arguments)))
        except SessionCacheError as error:
            return asynchronous.as_error(error)


def _checked(session: Session) -> Session:
    if not isinstance(session, Session):
        raise ConfigurationError(f"a session of sessioncache.sync is needed, not {type(session).__name__}")
    return session
