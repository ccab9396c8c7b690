"""The checker of keys left behind finds what must not be left behind."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sessioncache.hot.layout import Layout, Place
from sessioncache.hot.messages import Part
from sessioncache.primitives.revisions import encode_revision
from tests.keys import check_keys
from tests.scripts.bench import BUCKETS, START, Bench, drop, put

Harm = Callable[[Bench, Place, Place], object]


def dirty_key(bench: Bench, place: Place) -> bytes:
    """The set of a scope's dirty fields."""
    return bench.key(place, f"d:{place.ref.member}")


def expire(bench: Bench, key: bytes) -> None:
    """Give a key a time to live."""
    bench.ask("EXPIRE", key, 100)


HARMS: dict[str, tuple[Harm, str]] = {
    "a key of nobody": (lambda b, d, c: b.ask("SET", "other", "1"), "not a key of ours"),
    "an unknown kind": (lambda b, d, c: b.ask("SET", "t:{0}:novel", "1"), "not a key of ours"),
    "another type": (
        lambda b, d, c: b.ask("DEL", b.key(d, "since")) and b.ask("SADD", b.key(d, "since"), d.ref.member),
        "a set instead of a zset",
    ),
    "a control that expires": (lambda b, d, c: expire(b, d.control), "ctl: has a TTL"),
    "an index that expires": (lambda b, d, c: expire(b, b.key(d, "dirty")), "dirty: has a TTL"),
    "marks that expire": (lambda b, d, c: expire(b, dirty_key(b, d)), "has a TTL"),
    "a dirty hash that expires": (lambda b, d, c: expire(b, d.hash), "dirty and may expire"),
    "a clean hash that stays": (lambda b, d, c: b.ask("PERSIST", c.hash), "clean and has no TTL"),
    "a temp hash that stays": (lambda b, d, c: b.ask("PERSIST", d.temp), "has no TTL"),
    "a staged chunk that stays": (
        lambda b, d, c: b.ask("HSET", b.key(c, f"p:{c.ref.member}:ab"), "=k", "1"),
        "has no TTL",
    ),
    "marks without an index": (
        lambda b, d, c: b.ask("ZREM", b.key(d, "dirty"), d.ref.member),
        "not in the dirty index",
    ),
    "an index without marks": (lambda b, d, c: b.ask("ZADD", b.key(c, "dirty"), 1, c.ref.member), "has no marks"),
    "an index without since": (
        lambda b, d, c: b.ask("ZREM", b.key(d, "since"), d.ref.member),
        "one of dirty and since",
    ),
    "dirt without a hash": (lambda b, d, c: b.ask("DEL", d.hash), "has no hash"),
    "a session listed without dirt": (
        lambda b, d, c: b.ask("ZADD", b.key(d, f"unflushed:u:{'0' * 32}"), 1, "s" + "1" * 32),
        "has no mark of its head",
    ),
    "an unflushed session not listed": (
        lambda b, d, c: b.ask("DEL", b.key(d, f"unflushed:a:{d.parents[:32].decode()}")),
        "unflushed:a: lacks",
    ),
    "an unknown field of control": (lambda b, d, c: b.ask("HSET", d.control, "novel", "1"), "unknown field 'novel'"),
    "a claim on what is clean": (
        lambda b, d, c: b.ask("HSET", c.control, f"c:{c.ref.member}", "w|1|2"),
        "which is not dirty",
    ),
    "no control": (lambda b, d, c: b.ask("DEL", d.control), "ctl: is missing"),
    "an unknown head field": (lambda b, d, c: b.ask("HSET", c.hash, "novel", "1"), "unknown field b'novel'"),
    "a wrong count": (lambda b, d, c: b.ask("HINCRBY", d.hash, "n", 1), "counts keys and bytes"),
    "a wrong size": (lambda b, d, c: b.ask("HINCRBY", d.hash, "z", 1), "counts keys and bytes"),
    "an entry above the scope revision": (
        lambda b, d, c: b.ask("HSET", d.hash, "=k", encode_revision(START * 2) + b"1"),
        "above the scope revision",
    ),
    "an entry without revision": (lambda b, d, c: b.ask("HSET", d.hash, "=k", "1"), "has no revision"),
    "a tombstone that was flushed": (
        lambda b, d, c: b.ask("SREM", dirty_key(b, d), "=gone"),
        "a tombstone that was flushed",
    ),
    "temp: keys of a dead session": (lambda b, d, c: b.ask("HSET", d.hash, "x", "1"), "outlives its session"),
}


async def orderly(bench: Bench) -> tuple[Place, Place]:
    """A server with something of every kind: a dirty session with temp: keys, and a clean user."""
    session, user = bench.session(), bench.user()
    birth = (await bench.create(session, put("k", "1"), put("gone", "1"))).revision
    await bench.write(session, drop("gone"))
    await bench.write_parts([Part(session, [], birth), Part(session, [put("t", "1")], temp=True)])
    await bench.install(user)
    await bench.backlog.beat("w", "{}")
    await bench.claim(bucket=session.ref.bucket, everything=True)
    bench.hush()
    return session, user


async def test_a_server_in_good_order_passes(bench: Bench) -> None:
    await orderly(bench)
    check_keys(bench.raw, Layout("t", BUCKETS))


@pytest.mark.parametrize("harm", HARMS)
async def test_the_offender_is_named(bench: Bench, harm: str) -> None:
    places = await orderly(bench)
    do, why = HARMS[harm]
    do(bench, *places)
    with pytest.raises(AssertionError, match=why):
        check_keys(bench.raw)
    bench.raw.flushall()


async def test_keys_of_others_can_be_allowed(bench: Bench) -> None:
    await orderly(bench)
    bench.ask("SET", "other", "1")
    check_keys(bench.raw, foreign=True)
    bench.ask("DEL", "other")


async def test_keys_beyond_the_last_bucket_are_told(bench: Bench) -> None:
    await orderly(bench)
    with pytest.raises(AssertionError, match="of another installation, or of a bucket beyond the last"):
        check_keys(bench.raw, Layout("t", 1))
