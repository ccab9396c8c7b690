"""Synchronous sessions."""

from __future__ import annotations

from datetime import datetime

from sessioncache import session as asynchronous
from sessioncache.info import SessionInfo
from sessioncache.sync.handle import Handle
from sessioncache.sync.likeness import like


class Session(Handle[asynchronous.Session]):
    """One life of one session: its keys, merged with those of its user and app by prefix.

    Every call raises SessionNotFoundError once the session was deleted, also if one of the same id was created since.
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
