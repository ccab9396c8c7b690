"""Places: the addresses of the scopes from which a session's state is merged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from sessioncache.coordination.tiers import Tiers
from sessioncache.hot.layout import Place
from sessioncache.primitives.names import KeyScope
from sessioncache.primitives.scopes import app_ref, session_ref, user_ref


@dataclass(frozen=True)
class SessionPlaces:
    """The addresses of the scopes from which a session's state is merged."""

    session: Place
    user: Place
    app: Place

    @classmethod
    def of(cls, tiers: Tiers, org: str, app: str, user: str, session: str) -> SessionPlaces:
        """The places of one session."""
        n, place = tiers.settings.buckets, tiers.layout.place
        return cls(
            place(session_ref(n, org, app, user, session)),
            place(user_ref(n, org, app, user)),
            place(app_ref(n, org, app)),
        )

    @cached_property
    def by_scope(self) -> Mapping[KeyScope, Place]:
        """By scope; the session comes first, since every call checks its life, and `temp:` keys beside it."""
        return {
            KeyScope.SESSION: self.session,
            KeyScope.TEMP: self.session,
            KeyScope.USER: self.user,
            KeyScope.APP: self.app,
        }
