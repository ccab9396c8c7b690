"""R17: where Redis may have forgotten something, nothing happens before SQL knows its new incarnation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sessioncache.errors import ConfigurationError, HotTierUnavailableError
from sessioncache.hot.incarnations import Current
from sessioncache.hot.layout import Place
from sessioncache.hot.merging import TakenScope
from sessioncache.hot.messages import Operation, Part, Wanted
from sessioncache.hot.signals import Need, Unready, UnreadyBuckets
from sessioncache.hot.tier import HotTier
from sessioncache.hot.write import Write
from sessioncache.primitives.entries import Entry
from sessioncache.primitives.ownership import check_owner
from tests.scripts.bench import BUCKETS, DELAY, IDLE, LEASE, START, TEMP, Bench, put

Call = Callable[[Bench, Place], Awaitable[Any]]


async def _claim(bench: Bench, place: Place) -> None:
    found = await bench.backlog.claim([place.ref.bucket], "w", lease=LEASE, delay=DELAY, most=1)
    if found[place.ref.bucket] is None:
        raise UnreadyBuckets([place.ref.bucket])


async def _read_dirt(bench: Bench, place: Place) -> None:
    (found,) = await bench.backlog.read_dirt([(place.ref.bucket, place.ref.member)])
    if isinstance(found, Unready):
        raise found


async def _look(bench: Bench, place: Place) -> None:
    if await bench.merging.look([TakenScope(place, b"t", "inc")]) == [None]:
        raise Unready(Need.REGISTER, [place])


CALLS: dict[str, Call] = {
    "read": lambda bench, place: bench.read(place),
    "write": lambda bench, place: bench.write(place, put("k", "1"), birth=b"b"),
    "create": lambda bench, place: bench.create(place, token=b"*"),
    "delete": lambda bench, place: bench.delete(place, b""),
    "token": lambda bench, place: bench.hot.take_token(place),
    "install": lambda bench, place: bench.install(place, token=b"t"),
    "stage": lambda bench, place: bench.hot.stage(place, b"t", [b"=k", b"1"]),
    "absent": lambda bench, place: bench.hot.confirm_absent(place, b"t"),
    "look": lambda bench, place: _look(bench, place),
    "flushed": lambda bench, place: bench.hot.flush_state([place]),
    "unflushed": lambda bench, place: bench.hot.unflushed("u", "0" * 32, [place.ref.bucket]),
    "claim": _claim,
    "dirt": _read_dirt,
}


async def refused(bench: Bench, name: str) -> bool:
    """Whether a script asks for registering, and leaves everything as it was."""
    before = [(key, bench.raw.dump(key)) for key in sorted(bench.raw.keys())]
    with pytest.raises((Unready, UnreadyBuckets)) as why:
        await CALLS[name](bench, bench.session())
    assert [(key, bench.raw.dump(key)) for key in sorted(bench.raw.keys())] == before
    return not isinstance(why.value, Unready) or why.value.need is Need.REGISTER


@pytest.mark.parametrize("name", CALLS)
async def test_a_bucket_without_control_asks_to_be_registered(fresh: Bench, name: str) -> None:
    assert await refused(fresh, name)


@pytest.mark.parametrize("name", CALLS)
async def test_an_incarnation_that_sql_does_not_know_yet_asks_to_be_registered(fresh: Bench, name: str) -> None:
    await fresh.incarnations.current(range(BUCKETS), {})
    assert await refused(fresh, name)


@pytest.mark.parametrize("name", CALLS)
async def test_an_incarnation_of_another_primary_asks_to_be_registered(bench: Bench, name: str) -> None:
    await bench.create(bench.session(), put("k", "1"))
    await bench.flush(bench.session())
    bench.fail_over()
    assert await refused(bench, name)
    bench.fail_over("aa")


async def test_an_acknowledgement_in_a_bucket_that_is_not_registered_changes_nothing(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place, put("k", "1"))
    dirt = await bench.dirt(place)
    bench.fail_over()
    assert await bench.try_acknowledge(dirt) is None
    assert bench.marks(place) == {b"=k", b"!"}


async def test_an_incarnation_stays_while_nothing_is_forgotten(bench: Bench) -> None:
    first = await bench.register()
    bench.clock.move(1000)
    assert await bench.register() == first


async def test_another_primary_means_a_new_incarnation(bench: Bench) -> None:
    first = await bench.register()
    bench.fail_over()
    found = await bench.incarnations.current(range(BUCKETS), {})
    assert all(one.id != first[bucket] and not one.registered for bucket, one in found.items())


async def test_a_first_replica_leaves_the_incarnation_to_be_confirmed(bench: Bench) -> None:
    first = await bench.register()
    await bench.create(bench.session())
    bench.tell("bb")
    found = await bench.incarnations.current(range(BUCKETS), {})
    assert all((one.id, one.registered, one.kept) == (first[bucket], False, True) for bucket, one in found.items())
    assert await refused(bench, "read"), "until it is confirmed"
    await bench.incarnations.confirm(first)
    await bench.read(bench.session())
    assert (await bench.incarnations.current([0], {}))[0] == Current(first[0], registered=True)


FORGETTING: dict[str, dict[str, Any]] = {
    "restarted": {"run": "bb"},
    "fed by a primary": {"fed": 1},
    "promoted": {"second": "a" * 40},
}


@pytest.mark.parametrize("told", FORGETTING.values(), ids=FORGETTING)
async def test_another_replid_with_any_sign_of_forgetting_means_a_new_incarnation(
    bench: Bench, told: dict[str, Any]
) -> None:
    first = await bench.register()
    bench.tell("bb", **told)
    assert await bench.incarnations.keep([0]) == set()
    await bench.incarnations.confirm(first)
    assert await refused(bench, "claim"), "not confirmed"
    assert (await bench.incarnations.current([0], {}))[0].id != first[0]


async def test_with_sql_away_redis_is_worked_on_where_only_the_replid_has_changed(bench: Bench) -> None:
    await bench.create(bench.session())
    bench.tell("bb")
    assert await bench.incarnations.keep(range(BUCKETS))
    await bench.read(bench.session())


async def test_with_sql_away_nothing_is_kept_that_sql_never_knew(fresh: Bench) -> None:
    await fresh.incarnations.current(range(BUCKETS), {})
    assert not await fresh.incarnations.keep([0])
    assert fresh.ask("HGET", fresh.layout.control(0), "registered") == b"0"


async def test_a_new_incarnation_tells_the_one_before_unless_something_is_missing(bench: Bench) -> None:
    first = await bench.register()
    bench.tell("bb", run="bb")
    assert {one.before for one in (await bench.incarnations.current([0], {})).values()} == {first[0]}
    bench.tell("cc", run="cc")
    assert {one.before for one in (await bench.incarnations.current([0], {})).values()} == {first[0]}, "still"
    bench.tell("dd", run="dd", second="a" * 40)
    assert {one.before for one in (await bench.incarnations.current([0, 1], {})).values()} == {""}


async def test_a_redis_that_is_replaced_again_within_a_minute_is_told_of_the_other_one(bench: Bench) -> None:
    ids = await bench.register()
    for _ in range(2):
        ids = {0: (await bench.incarnations.current([0], {0: ids[0]}, replaced=True))[0].id}
        await bench.incarnations.confirm(ids)
        with pytest.raises(HotTierUnavailableError, match="another Redis"):
            await bench.incarnations.current([0], {0: ids[0]}, replaced=True)
        bench.clock.move(61)


async def test_an_incarnation_bears_the_database_that_it_belongs_to(bench: Bench) -> None:
    await bench.register()
    bench.incarnations.database = "0123456789abcdef"
    bench.tell("bb", run="bb")
    found = await bench.register()
    await bench.create(bench.session())
    for ours in ("", "0123456789abcdef"):
        bench.hot.idempotency.database = ours
        await bench.read(bench.session())
    check_owner(found[0], "0123456789abcdef")
    again = HotTier(bench.link, bench.layout, idle_ttl=IDLE, temp_ttl=TEMP)
    again.idempotency.database = "fedcba9876543210"
    for call in (again.read([Wanted(bench.session())]), again.write(Write([Part(bench.session(), [put("k", "1")])]))):
        with pytest.raises(ConfigurationError, match="belongs to another database"):
            await call
    assert await bench.values(bench.session()) == {}, "nothing was written for the wrong one"


async def test_a_flushed_server_has_a_new_incarnation(bench: Bench) -> None:
    first = await bench.register()
    bench.raw.flushdb()
    bench.fail_over("aa")
    assert not set((await bench.register()).values()) & set(first.values())


async def test_an_incarnation_that_was_replaced_never_comes_back(bench: Bench) -> None:
    first = await bench.register()
    found = await bench.incarnations.current([0], {0: first[0]})
    assert found[0].id != first[0]
    assert not found[0].registered


async def test_an_outdated_confirmation_registers_nothing(bench: Bench) -> None:
    first = await bench.register()
    await bench.incarnations.current([0], {0: first[0]})
    await bench.incarnations.confirm({0: first[0]})
    assert (await bench.incarnations.current([0], {}))[0].registered is False


async def test_a_confirmation_that_comes_after_a_failover_registers_nothing(fresh: Bench) -> None:
    found = await fresh.incarnations.current([0], {})
    fresh.fail_over()
    await fresh.incarnations.confirm({0: found[0].id})
    assert fresh.ask("HGET", fresh.layout.control(0), "registered") == b"0"


async def forgetful(bench: Bench, *operations: Operation, flushed: bool) -> Place:
    """A user's scope whose hash is of an older incarnation."""
    place = bench.user()
    await bench.install(place, [Entry("k", START - 1, b"1")], known=START - 1)
    await bench.write(place, *operations)
    if flushed:
        await bench.flush(place)
    bench.fail_over()
    await bench.register()
    return place


@pytest.mark.parametrize("name", ["read", "write", "token"])
async def test_a_hash_of_an_older_incarnation_is_not_used(bench: Bench, name: str) -> None:
    place = await forgetful(bench, put("k", "2"), flushed=True)
    with pytest.raises(Unready) as why:
        await CALLS[name](bench, place)
    assert why.value.need is Need.REVALIDATE


async def test_a_session_of_an_older_incarnation_is_neither_created_over_nor_deleted(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place)
    await bench.flush(place)
    bench.fail_over()
    await bench.register()
    for name in ("create", "delete"):
        with pytest.raises(Unready) as why:
            await CALLS[name](bench, place)
        assert why.value.need is Need.REVALIDATE


async def test_dirt_of_an_older_incarnation_is_settled_before_it_is_read(bench: Bench) -> None:
    place = await forgetful(bench, put("k", "2"), flushed=False)
    (found,) = await bench.backlog.read_dirt([(place.ref.bucket, place.ref.member)])
    assert isinstance(found, Unready)
    assert found.need is Need.REVALIDATE


async def test_the_part_whose_bucket_is_unknown_is_named(bench: Bench) -> None:
    names = [str(number) for number in range(99)]
    known = next(place for place in map(bench.user, names) if place.ref.bucket == 0)
    unknown = next(place for place in map(bench.user, names) if place.ref.bucket == 1)
    await bench.install(known)
    bench.ask("HSET", unknown.control, "registered", "0")
    with pytest.raises(Unready) as why:
        await bench.write_parts([Part(known, [put("k", "1")]), Part(unknown, [put("k", "1")])])
    assert (why.value.need, why.value.places) == (Need.REGISTER, [unknown])
    assert bench.marks(known) == set()


async def test_what_redis_forgot_is_recorded_where_another_process_confirmed_first(bench: Bench) -> None:
    await bench.register()
    bench.raw.delete(*(bench.layout.control(bucket) for bucket in range(BUCKETS)))
    found = {bucket: one.id for bucket, one in (await bench.incarnations.current(range(BUCKETS), {})).items()}
    await bench.incarnations.confirm(found)
    await bench.incarnations.confirm(found, {1})
    assert [bench.raw.hget(bench.layout.control(bucket), "forgot") for bucket in (0, 1)] == [None, b"1"]


async def test_a_new_incarnation_names_the_one_that_it_replaces_only_where_redis_had_all_of_it(bench: Bench) -> None:
    first = await bench.register()
    (one,) = (await bench.incarnations.current([0], {0: first[0]})).values()
    assert one.whole == first[0]
    assert (await bench.incarnations.current([0], {}))[0].whole == "", "it is not new any more"
    bench.tell("bb", run="bb")
    (one,) = (await bench.incarnations.current([1], {1: first[1]})).values()
    assert one.whole == ""


async def test_a_bucket_without_an_incarnation_is_not_registered(bench: Bench) -> None:
    first = await bench.register()
    bench.raw.hdel(bench.layout.control(0), "incarnation")
    assert await bench.incarnations.registered([0, 1]) == {1: first[1]}
    bench.raw.hset(bench.layout.control(0), "incarnation", first[0])
