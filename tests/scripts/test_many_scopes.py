"""One script answers for many scopes: each as if it were alone, and in order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from sessioncache.hot.client import Reply
from sessioncache.hot.merging import TakenScope
from sessioncache.hot.messages import Acknowledged, Damaged, Large
from sessioncache.hot.reconciling import Looked, stamp_anew
from sessioncache.hot.signals import Need, Unready
from sessioncache.primitives.entries import Committed, Dirt
from sessioncache.primitives.revisions import DIGITS
from tests.scripts.bench import DELAY, Bench, put

MANY = 40
"""More than one script takes."""


async def written(bench: Bench, text: str = "1") -> list[tuple[int, str]]:
    """Sessions of many users in both buckets, dirty; their buckets and members."""
    places = [bench.session(f"s{number}", f"u{number}") for number in range(MANY)]
    for place in places:
        await bench.create(place, put("k", text))
    return [(place.ref.bucket, place.ref.member) for place in places]


async def read(bench: Bench, scopes: list[tuple[int, str]]) -> list[Dirt]:
    """The dirt of scopes, each of which must have some."""
    found = await bench.backlog.read_dirt(scopes)
    return [one for one in found if isinstance(one, Dirt)]


async def test_many_scopes_are_read_and_acknowledged_in_order(bench: Bench) -> None:
    scopes = await written(bench)
    dirt = await read(bench, scopes)
    assert [(one.bucket, one.kind.value + one.scope_id) for one in dirt] == scopes
    committed = [Committed(one, one.head.revision, [entry.revision for entry in one.entries]) for one in dirt]
    done = await bench.backlog.acknowledge(committed, delay=DELAY)
    assert [isinstance(one, Acknowledged) and (one.left, one.rows) for one in done] == [(0, 1)] * MANY
    assert await bench.backlog.count_dirty(range(2)) == {0: 0, 1: 0}
    assert (await bench.backlog.counters(range(2))).rows == MANY


async def test_one_scope_that_is_refused_does_not_touch_the_others(bench: Bench) -> None:
    dirt = await read(bench, await written(bench))
    committed = [Committed(one, one.head.revision, [one.entries[0].revision + (one is dirt[20])]) for one in dirt]
    done = await bench.backlog.acknowledge(committed, delay=DELAY)
    assert [isinstance(one, Acknowledged) and one.left for one in done] == [int(one is dirt[20]) for one in dirt]


async def test_one_scope_that_is_to_be_settled_does_not_keep_the_others(bench: Bench) -> None:
    scopes = await written(bench)
    bench.raw.hset(f"t:{{{scopes[20][0]}}}:h:{scopes[20][1]}", "y", "1")
    found = await bench.backlog.read_dirt(scopes)
    assert [isinstance(one, Dirt) for one in found] == [place != scopes[20] for place in scopes]
    assert isinstance(found[20], Unready)
    assert found[20].need is Need.REVALIDATE


async def test_large_scopes_are_read_in_several_steps(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    call_each = bench.link.call_each

    async def measured(*call: Any) -> list[Reply]:
        replies = await call_each(*call)
        sizes.extend(len(str(reply)) for reply in replies)
        return replies

    text = '"' + "x" * 300_000 + '"'
    scopes = await written(bench, text)
    monkeypatch.setattr(bench.link, "call_each", measured)
    dirt = await read(bench, scopes)
    assert [len(one.entries[0].text) for one in dirt] == [len(text)] * MANY
    assert max(sizes) < 2_000_000, "Redis holds what one script replies"


async def test_of_a_large_scope_only_the_size_is_told_until_it_is_asked_for_alone(bench: Bench) -> None:
    scopes = await written(bench)
    large = bench.session("large", "u1")
    await bench.create(large, put("k", '"' + "x" * 1_000 + '"'))
    scope = (large.ref.bucket, large.ref.member)
    found = await bench.backlog.read_dirt([*scopes, scope], 500)
    assert [isinstance(one, Dirt) for one in found[:-1]] == [True] * MANY
    assert found[-1] == Large(scope, 1_002 + DIGITS)
    (dirt,) = await read(bench, [scope])
    assert len(dirt.entries[0].text) == 1_002


async def test_what_is_revalidated_is_told_in_few_calls_none_of_which_tells_much(bench: Bench) -> None:
    names = [name for name in map(str, range(20)) if bench.user(name).ref.bucket == 0][:3]
    places, sizes = [bench.user(name) for name in names], [1_500, 3, 2]
    for place, size in zip(places, sizes, strict=True):
        await bench.install(place)
        await bench.write(place, *(put(f"k{number}", "1") for number in range(size)))
    bench.fail_over(bench.replid + "b")
    await bench.register()
    taken = [one for one in await bench.merging.take_tokens(places) if isinstance(one, TakenScope)]
    first = await bench.merging._look(taken, 0)
    assert [reply[0] for reply in first] == [b"ok", b"later", b"later"], "one call, and enough"
    looks = await bench.merging.look(taken)
    assert [len(one.entries) if isinstance(one, Looked) else 0 for one in looks] == sizes


@pytest.fixture
async def spoilt(bench: Bench) -> AsyncIterator[Bench]:
    """One in which something is damaged: what is left of it in the end is nobody's concern."""
    yield bench
    bench.raw.flushall()


def spoil(bench: Bench, scope: tuple[int, str]) -> None:
    """Put a text in the place of the marks of a scope."""
    name = f"t:{{{scope[0]}}}:d:{scope[1]}"
    bench.raw.delete(name)
    bench.raw.set(name, "x")


async def test_r10_one_damaged_scope_does_not_keep_the_others_from_being_read(spoilt: Bench) -> None:
    scopes = await written(spoilt)
    spoil(spoilt, scopes[20])
    found = await spoilt.backlog.read_dirt(scopes)
    assert [scope for scope, one in zip(scopes, found, strict=True) if isinstance(one, Damaged)] == [scopes[20]]
    assert sum(isinstance(one, Dirt) for one in found) == MANY - 1


async def test_r10_one_damaged_scope_does_not_keep_the_others_from_being_acknowledged(spoilt: Bench) -> None:
    scopes = await written(spoilt)
    dirt = await read(spoilt, scopes)
    spoil(spoilt, scopes[20])
    committed = [Committed(one, one.head.revision, [entry.revision for entry in one.entries]) for one in dirt]
    done = await spoilt.backlog.acknowledge(committed, delay=DELAY)
    assert [scope for scope, one in zip(scopes, done, strict=True) if isinstance(one, Damaged)] == [scopes[20]]
    assert [one.left for one in done if isinstance(one, Acknowledged)] == [0] * (MANY - 1)


async def test_r10_one_damaged_scope_does_not_keep_the_others_from_being_revalidated(spoilt: Bench) -> None:
    scopes = await written(spoilt)
    places = [spoilt.backlog.place(*scope) for scope in scopes]
    spoilt.fail_over(spoilt.replid + "b")
    await spoilt.register()
    taken = [one for one in await spoilt.merging.take_tokens(places) if isinstance(one, TakenScope)]
    spoil(spoilt, scopes[20])
    looks = await spoilt.merging.look(taken)
    assert [scope for scope, one in zip(scopes, looks, strict=True) if isinstance(one, Damaged)] == [scopes[20]]
    jobs = [
        (one, looked, stamp_anew(one.place.ref.kind, looked))
        for one, looked in zip(taken, looks, strict=True)
        if isinstance(looked, Looked)
    ]
    spoil(spoilt, scopes[10])
    left = await spoilt.merging.carry_out(jobs)
    assert [number for number, one in enumerate(left) if isinstance(one, Damaged)] == [10]
    assert [one for one in left if isinstance(one, int)] == [2] * (MANY - 2)


async def test_the_tokens_of_a_call_that_failed_are_given_to_the_others(spoilt: Bench) -> None:
    scopes = await written(spoilt)
    places = [spoilt.backlog.place(*scope) for scope in scopes]
    spoilt.fail_over(spoilt.replid + "b")
    await spoilt.register()
    spoilt.raw.delete(places[20].hash)
    spoilt.raw.set(places[20].hash, "x")
    taken = await spoilt.merging.take_tokens(places)
    assert [number for number, one in enumerate(taken) if isinstance(one, Damaged)] == [20]
    assert sum(isinstance(one, TakenScope) for one in taken) == MANY - 1
