"""What each internal field and each kind of key costs in Redis, a session: by leaving it out of copies of the hash.

``python benchmarks/fields.py [--server valkey|redis] [--sessions N] [--json]``

Prices are those in hashes whose numbers of keys and lengths of values differ by a fifth, so that the steps in which
memory is handed out, and tables grow, even out.  The hash and the bare one are of exactly the shape.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measuring import console, print_json, table
from tests.helpers import Urls, connect, drain, raw, upgrade
from tests.servers import RedisKind, RedisServer

SHAPES = ((10, 100), (10, 1_000), (50, 50))
"""Keys of a session, and the characters of each value."""
FIELDS = {
    "i": "incarnation",
    "r": "scope revision",
    "b": "birth",
    "c": "last cleared",
    "x": "deleted",
    "f": "flushed through",
    "p": "purged",
    "n": "living keys",
    "z": "bytes of values",
    "v": "revision of the values",
    "h": "revision of the head",
    "u": "updated",
    "o": "org",
    "a": "app",
    "w": "user",
    "s": "session id",
    "t": "title",
    "m": "messages",
    "k": "tokens",
    "q": "forked from",
    "d": "id of the session of a namespace",
    "l": "when a namespace may have been added",
}
_BATCH = 64

Hash = dict[bytes, bytes]
"""What a hash holds."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Bytes a session, but for the ratio."""

    bare: float
    """A hash of the same keys and values under a key of the same length, with a TTL."""
    clean: float
    """The session's hash once it is flushed."""
    fields: dict[str, float]
    """By head field: what its absence saves."""
    lengths: dict[str, int]
    """By head field: the bytes of its value."""
    stamps: float
    """The revisions and marks of all keys."""
    kinds: dict[str, float]
    """By kind of key: what it takes beside the hash while the session is dirty."""

    @property
    def ratio(self) -> float:
        """Ours to the bare one."""
        return self.clean / self.bare


def varied(one: Hash, keys: int, length: int, number: int) -> Hash:
    """The head of a session with up to a fifth fewer keys and shorter values, by its number."""
    left = keys - number % (keys // 5 + 1)
    heads = {field: value for field, value in one.items() if not field.startswith(b"=")}
    lengths = (length - (7 * number + 3 * key) % (length // 5 + 1) for key in range(left))
    return heads | {f"=key-{key:06}".encode(): b'123456789"%s"' % (b"v" * size) for key, size in enumerate(lengths)}


async def measure(kind: RedisKind, keys: int, length: int, sessions: int) -> Prices:
    """Fill an empty server, and take it apart."""
    server = RedisServer(kind).start()
    state = {f"key-{key:06}": "v" * length for key in range(keys)}
    try:
        urls = Urls(server.url, f"sqlite:///{server.folder}/state.db")
        await upgrade(urls.database)
        async with connect(urls) as cache:
            for start in range(0, sessions, _BATCH):
                numbers = range(start, min(start + _BATCH, sessions))
                calls = (cache.create(f"user-{n}", session_id=f"session-{n}", state=state) for n in numbers)
                await asyncio.gather(*calls)
        with raw(urls.redis) as client:
            kinds = beside_hashes(client, sessions)
            await drain(urls)
            return taken_apart(client, keys, length, kinds)
    finally:
        server.destroy()


def beside_hashes(client: Any, sessions: int) -> dict[str, float]:
    """Bytes a session by kind of key."""
    found: dict[str, float] = defaultdict(float)
    for key in client.scan_iter(count=1000):
        kind = re.sub(rb"^.*?\}:|:[0-9a-f]{32}$|:[snua][0-9a-f]{32}$|:[01]$", b"", key).decode()
        if kind != "h" and b"}" in key:
            found[kind] += sizes(client, [key]) / sessions
    return dict(found)


def taken_apart(client: Any, keys: int, length: int, kinds: dict[str, float]) -> Prices:
    """What the hashes of all sessions are made of, on average."""
    names = list(client.scan_iter(match="sessioncache:*:h:s*", count=1000))
    hashes: list[Hash] = [client.hgetall(name) for name in names]
    heads = [field for field in hashes[0] if not field.startswith(b"=")]
    unstamped = [{f.removeprefix(b"="): v[9:] if f[:1] == b"=" else v for f, v in one.items()} for one in hashes]
    bare = [{field: value for field, value in one.items() if field not in heads} for one in unstamped]
    others = [varied(one, keys, length, number) for number, one in enumerate(hashes)]
    usual = stored(client, names, others)
    return Prices(
        bare=stored(client, names, bare),
        clean=sizes(client, names) / len(names),
        fields={f.decode(): usual - stored(client, names, (_without(one, f) for one in others)) for f in sorted(heads)},
        lengths={field.decode(): len(hashes[0][field]) for field in heads},
        stamps=stored(client, names, hashes) - stored(client, names, unstamped),
        kinds=kinds,
    )


def _without(fields: Hash, name: bytes) -> Hash:
    return {field: value for field, value in fields.items() if field != name}


def stored(client: Any, names: list[bytes], contents: Iterable[Hash]) -> float:
    """Bytes a hash of these contents, under names of the same length."""
    copies = [b"C" + name[1:] for name in names]
    with client.pipeline(transaction=False) as pipeline:
        for name, fields in zip(copies, contents, strict=True):
            pipeline.hset(name, mapping=fields)
            pipeline.expire(name, 86_400)
        pipeline.execute()
    taken = sizes(client, copies) / len(copies)
    client.delete(*copies)
    return taken


def sizes(client: Any, names: list[bytes]) -> int:
    """Bytes of keys with all that they hold."""
    with client.pipeline(transaction=False) as pipeline:
        for name in names:
            pipeline.memory_usage(name, samples=0)
        return sum(pipeline.execute())


def rows(found: Mapping[str, Prices]) -> list[tuple[str, ...]]:
    """Lines of the table: a shape in each column."""
    every = list(found.values())

    def line(what: str, *numbers: float, digits: int = 0) -> tuple[str, ...]:
        return (what, *(f"{number:,.{digits}f}" for number in numbers))

    kinds = sorted({kind for one in every for kind in one.kinds})
    return [
        line("a bare hash", *(one.bare for one in every)),
        line("the session's hash, clean", *(one.clean for one in every)),
        line("÷ bare", *(one.ratio for one in every), digits=2),
        line("revisions of all keys", *(one.stamps for one in every)),
        *(
            line(
                f"{field}  {FIELDS[field]} ({every[0].lengths[field]} B)", *(one.fields.get(field, 0) for one in every)
            )
            for field in every[0].fields
        ),
        *(line(f"while dirty: {kind}", *(one.kinds.get(kind, 0) for one in every)) for kind in kinds),
    ]


def figures(found: Mapping[str, Prices]) -> dict[str, float]:
    """For scripts: `fields_SHAPE_WHAT`."""
    told: dict[str, float] = {}
    for shape, one in found.items():
        parts = {"bare": one.bare, "clean": one.clean, "ratio": one.ratio, "stamps": one.stamps}
        parts |= one.fields | {f"dirty_{kind}": price for kind, price in one.kinds.items()}
        told |= {f"fields_{shape}_{name}": value for name, value in parts.items()}
    return told


async def main() -> None:
    """Measure, and tell."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--server", choices=["valkey", "redis"], default="valkey", help="the engine (valkey)")
    parser.add_argument("--sessions", type=int, default=500, help="sessions of each shape (500)")
    parser.add_argument("--json", action="store_true", help="the last line of stdout is one JSON object")
    options = parser.parse_args()
    found = {f"{k}x{length}": await measure(options.server, k, length, options.sessions) for k, length in SHAPES}
    title = f"Bytes a session ({options.server}, {options.sessions:,} sessions)"
    console().print(table(title, ("what", *found), rows(found)))
    if options.json:
        print_json(figures(found))


if __name__ == "__main__":
    asyncio.run(main())
