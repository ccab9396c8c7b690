"""Synchronous sessions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import Any, Self, cast

from sessioncache import current
from sessioncache import session as asynchronous
from sessioncache.primitives.session_info import Identity, SessionInfo
from sessioncache.records import Record
from sessioncache.sync.handle import Block, Handle, Namespace
from sessioncache.sync.likeness import like


class Session(Handle[asynchronous.Session]):
    """One life of one session: its keys, merged with those of its user and app by prefix.

    Every call raises SessionNotFoundError once the session was deleted, even if one of the same id was created since.
    """

    @property
    @like(asynchronous.Session.info)
    def info(self) -> SessionInfo:
        return self._handle.info

    @property
    @like(asynchronous.Session.id)
    def id(self) -> str:
        return self._handle.id

    @property
    @like(asynchronous.Session.org)
    def org(self) -> str:
        return self._handle.org

    @property
    @like(asynchronous.Session.app)
    def app(self) -> str:
        return self._handle.app

    @property
    @like(asynchronous.Session.user)
    def user(self) -> str:
        return self._handle.user

    @property
    @like(asynchronous.Session.title)
    def title(self) -> str:
        return self._handle.title

    @property
    @like(asynchronous.Session.created_at)
    def created_at(self) -> datetime:
        return self._handle.created_at

    @property
    @like(asynchronous.Session.updated_at)
    def updated_at(self) -> datetime:
        return self._handle.updated_at

    @property
    @like(asynchronous.Session.message_count)
    def message_count(self) -> int:
        return self._handle.message_count

    @property
    @like(asynchronous.Session.token_total)
    def token_total(self) -> int:
        return self._handle.token_total

    @property
    @like(asynchronous.Session.forked_from)
    def forked_from(self) -> str | None:
        return self._handle.forked_from

    @property
    @like(asynchronous.Session.identity)
    def identity(self) -> Identity:
        return self._handle.identity

    @like(asynchronous.Session.bind)
    def bind(self) -> AbstractContextManager[Self]:
        return current.bound(self)

    # ---- its life

    @like(asynchronous.Session.touch)
    def touch(self, *, messages: int = 0, tokens: int = 0, first_message: str | None = None) -> SessionInfo:
        return self._run(self._async.touch(messages=messages, tokens=tokens, first_message=first_message))

    @like(asynchronous.Session.rename)
    def rename(self, title: str) -> SessionInfo:
        return self._run(self._async.rename(title))

    @like(asynchronous.Session.fork)
    def fork(self, *, new_id: str | None = None) -> Session:
        return Session(self._owner, self._run(self._async.fork(new_id=new_id)))

    @like(asynchronous.Session.records)
    def records(self) -> list[Record]:
        return self._run(self._async.records())

    @like(asynchronous.Session.upsert_record)
    def upsert_record(self, record: Record) -> bool:
        return self._run(self._async.upsert_record(record))

    @like(asynchronous.Session.clear)
    def clear(self) -> int:
        return self._run(self._async.clear())

    @like(asynchronous.Session.export)
    def export(self) -> dict[str, Any]:
        return self._run(self._async.export())

    @like(asynchronous.Session.namespace)
    def namespace(self, name: str) -> Namespace:
        return Namespace(self._owner, self._async.namespace(name))

    @like(asynchronous.Session.lease)
    @contextmanager
    def lease(self, ttl: float = 30, wait: float = 0) -> Iterator[Session]:
        with Block(self._async.lease(ttl, wait)) as held:
            yield Session(self._owner, held)


@like(current.current_session)
def current_session() -> Session:
    return cast(Session, current.current_session())
