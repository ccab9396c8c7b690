"""The installation: one database and the Redis that belongs to it, recorded in both; whoever differs refuses to start.

The record holds the settings that all processes must share, and a random id.  Through the id, which every incarnation
begins with, each reply shows whether Redis still belongs to the database of this process (R18).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Protocol

from sessioncache.errors import ConfigurationError, DurableTierUnavailableError
from sessioncache.hot.client import HotClient
from sessioncache.hot.incarnations import Incarnations
from sessioncache.primitives.deadline import within
from sessioncache.primitives.outages import SQL
from sessioncache.primitives.ownership import INSTALLATION, TAKEN
from sessioncache.primitives.units import counted
from sessioncache.settings import (
    LAYOUT_VERSION,
    MAX_SCOPE_BYTES,
    MAX_SCOPE_KEYS,
    MAX_VALUE_BYTES,
    OPERATION_ID_LIFETIME,
    TOMBSTONE_RETENTION,
    CacheSettings,
)

if TYPE_CHECKING:
    from sessioncache.durable.tier import DurableTier

logger = logging.getLogger(__name__)

_PATIENCE = 1.0
"""Seconds that a call waits for SQL to be checked where Redis knows the installation."""
_PAUSE = 5.0
"""Seconds after which SQL is tried again when it is away."""


_STRANGE = (
    "this Redis is in use with another database, and this one has no record of an installation: it is not the one that"
    " Redis was used with. See that the database's URL (host, name, schema) is right; give a new installation a prefix"
    " of its own; if this database is to take the other one's place for good: `sessioncache db adopt`"
)


class Owned(Protocol):
    """An object that has to know which database Redis belongs to."""

    database: str


class Installation:
    """Checks, once, that servers, schema, settings and both tiers belong together."""

    def __init__(
        self,
        link: HotClient,
        incarnations: Incarnations,
        durable: DurableTier,
        settings: CacheSettings,
        owned: Sequence[Owned],
        tell: Callable[[Mapping[str, str]], None],
    ) -> None:
        """`owned`: objects that get the id of the installation as soon as it is known; `tell` gets all that SQL has
        recorded."""
        self._link = link
        self._incarnations = incarnations
        self._durable = durable
        self._ours = record_of(settings)
        self._owned = owned
        self._tell = tell
        self._busy = asyncio.Lock()
        self.checked = False
        self._again = 0.0

    async def check(self) -> None:
        """Raise ConfigurationError or SchemaVersionError where something does not fit.

        SQL may be away where Redis knows the installation: hot sessions work on.
        """
        async with self._busy:
            if self.checked or asyncio.get_running_loop().time() < self._again:
                return
            await self._check_server()
            hot = await self._incarnations.read_record()
            _compare("Redis", hot, self._ours)
            # Before SQL is asked: replies of Redis are compared with it also while SQL is away (R18).
            self._belongs_to(hot.get(INSTALLATION, ""))
            try:
                # R18: a Redis in use belongs to a database that was checked before; with an empty one nothing is known
                # yet.
                with within(_PATIENCE) if hot else nullcontext():
                    await self._check_durable(hot)
            except DurableTierUnavailableError as error:
                if not hot:
                    raise
                self._again = asyncio.get_running_loop().time() + _PAUSE
                if self._durable.outages is not None:
                    self._durable.outages.away(SQL, f"only hot sessions can be used until it is back: {error}")
                return
            self.checked = True

    async def _check_durable(self, hot: Mapping[str, str]) -> None:
        from sessioncache.durable.migrate import check_schema

        await check_schema(self._durable.engine)
        stored = await self._read_stored()
        # R18: a Redis in use beside an unknown database is most likely a wrong URL: it must not be drained into it.
        if INSTALLATION not in stored:
            if hot:
                raise ConfigurationError(_STRANGE)
            stored = await self._record(secrets.token_hex(8))
        elif not hot:
            await self._tell_of_takeover()
        if not hot:
            hot = await self._incarnations.write_record({name: stored[name] for name in (*self._ours, INSTALLATION)})
        # Another process may have recorded its own installation in this Redis meanwhile.
        if hot[INSTALLATION] != stored[INSTALLATION]:
            raise ConfigurationError(TAKEN)
        self._belongs_to(stored[INSTALLATION])

    async def _tell_of_takeover(self) -> None:
        """Log it: an emptied Redis is the usual case, but another one by mistake must be found before it does harm."""
        used = await self._durable.read_fences(range(int(self._ours["buckets"])))
        if used:
            logger.error(
                "an empty Redis takes over the installation of %s: whatever another Redis has that SQL lacks is not "
                "flushed any more.  If that is not meant, see that the Redis URL names the right server and database",
                counted(len(used), "bucket"),
            )

    async def _read_stored(self) -> dict[str, str]:
        """The record of the database, as far as there is one; other rows of its table are not part of it."""
        stored = await self._durable.read_layout()
        self._tell(stored)
        stored = {name: stored[name] for name in (*self._ours, INSTALLATION) if name in stored}
        _compare("the database", stored, self._ours)
        return stored

    async def _record(self, installation: str) -> dict[str, str]:
        """Record an installation where there is none; what is recorded then."""
        # Read back: of several processes that record one at the same time, the first one's counts.
        await self._durable.record_layout({**self._ours, INSTALLATION: installation})
        return await self._read_stored()

    def _belongs_to(self, installation: str) -> None:
        self._incarnations.record = {**self._ours, INSTALLATION: installation} if installation else {}
        for one in self._owned:
            one.database = installation

    async def adopt(self) -> None:
        """Let this Redis belong to this database from now on, which has no installation yet, and to no other one.

        ConfigurationError where the database has an installation of its own, or something else does not fit.
        """
        from sessioncache.durable.migrate import check_schema

        await self._check_server()
        _compare("Redis", await self._incarnations.read_record(), self._ours)
        await check_schema(self._durable.engine)
        if INSTALLATION in await self._read_stored():
            raise ConfigurationError(
                "this database has an installation of its own: only a new one can take over a Redis"
            )
        installation = secrets.token_hex(8)
        # Redis first: from then on all processes that still use the other database are refused.
        await self._incarnations.rewrite_record({**self._ours, INSTALLATION: installation})
        if (await self._record(installation))[INSTALLATION] != installation:
            raise ConfigurationError("another process has set this database up meanwhile: nothing more was changed")
        self._belongs_to(installation)
        self.checked = True

    async def _check_server(self) -> None:
        server = await self._link.info("server")
        # Valkey reports another version as that of Redis, for old clients.
        version = server.get("valkey_version") or server.get("redis_version", "0")
        if int(version.split(".")[0]) < 7:
            raise ConfigurationError(f"Redis 7.0 or Valkey 8 is needed, this server is {version}")
        if "cluster" in (server.get("redis_mode"), server.get("server_mode")):
            raise ConfigurationError("this Redis is in cluster mode, which is not supported: use one without it")
        # R15: no eviction may drop what SQL lacks.
        policy = (await self._link.info("memory")).get("maxmemory_policy")
        if policy is None:
            logger.warning("the eviction policy of Redis is unknown: it must be noeviction or volatile-*")
        elif policy.startswith("allkeys"):
            raise ConfigurationError(
                f"the eviction policy of Redis is {policy}, which drops what SQL lacks: set noeviction or volatile-lru"
            )


def record_of(settings: CacheSettings) -> dict[str, str]:
    """What both tiers record of an installation with these settings, beside its id."""
    return {
        "layout": str(LAYOUT_VERSION),
        "buckets": str(settings.buckets),
        "max_value_bytes": str(MAX_VALUE_BYTES),
        "max_scope_keys": str(MAX_SCOPE_KEYS),
        "max_scope_bytes": str(MAX_SCOPE_BYTES),
        "tombstone_retention": str(TOMBSTONE_RETENTION),
        "operation_id_lifetime": str(OPERATION_ID_LIFETIME),
    }


def _compare(where: str, found: Mapping[str, str], ours: Mapping[str, str]) -> None:
    different = [name for name in ours if name in found and found[name] != ours[name]]
    if different:
        told = ", ".join(f"{name} is {found.get(name)} there and {ours[name]} here" for name in different)
        raise ConfigurationError(f"{where} was set up differently: {told}")
