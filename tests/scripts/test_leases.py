"""R5, R17: what run leases decide by time, by life and by incarnation."""

from __future__ import annotations

import pytest

from sessioncache.hot.forking import Fork, Forking
from sessioncache.hot.layout import Place
from sessioncache.hot.messages import Part, Refused, Touch, Written
from sessioncache.hot.signals import Gone, Need, Unready
from sessioncache.primitives.revisions import ZERO
from sessioncache.settings import OPERATION_ID_LIFETIME as LIFETIME
from tests.scripts.bench import Bench, put

TTL = 30.0
HOUR = 3_600.0


async def held(bench: Bench, token: bytes = b"one") -> tuple[Place, bytes]:
    """A session and its birth; `token` holds its lease."""
    place = bench.session()
    await bench.create(place)
    birth = bench.field(place, "b")
    assert await bench.leases.take(place, birth, token, TTL) is None
    return place, birth


async def may_write(bench: Bench, place: Place, token: bytes = b"one") -> bool:
    """Whether a writer under a token is let in, by a write and by a touch."""
    birth = bench.field(place, "b")
    written = await bench.write_parts([Part(place, [put("k", "1")], birth)], token)
    touched, _ = await bench.hot.touch(Part(place, [], birth), Touch(), token)
    outcomes = [isinstance(outcome, Written) for outcome in (written, touched)]
    assert outcomes[0] is outcomes[1]
    assert outcomes[0] or written == touched == Refused("lease", [])
    return outcomes[0]


async def test_a_lease_is_held_until_the_microsecond_of_its_end(bench: Bench) -> None:
    place, birth = await held(bench)
    bench.clock.move(TTL - 0.000_001)
    assert await may_write(bench, place)
    assert await bench.leases.take(place, birth, b"two", TTL) == pytest.approx(0.000_001)
    bench.clock.move(0.000_001)
    assert not await may_write(bench, place)
    assert await bench.leases.take(place, birth, b"two", TTL) is None
    assert await may_write(bench, place, b"two")
    assert not await may_write(bench, place)


async def test_a_renewal_counts_from_its_own_time(bench: Bench) -> None:
    place, birth = await held(bench)
    bench.clock.move(20)
    assert await bench.leases.renew(place, birth, b"one", TTL)
    bench.clock.move(20)
    assert await may_write(bench, place)
    bench.clock.move(10)
    assert not await may_write(bench, place)


async def test_a_lease_that_nobody_took_since_may_be_renewed_late(bench: Bench) -> None:
    place, birth = await held(bench)
    bench.clock.move(100)
    assert await bench.leases.renew(place, birth, b"one", TTL)
    assert await may_write(bench, place)


async def test_a_lease_that_another_took_is_neither_renewed_nor_given_back(bench: Bench) -> None:
    place, birth = await held(bench)
    bench.clock.move(TTL)
    assert await bench.leases.take(place, birth, b"two", TTL) is None
    assert not await bench.leases.renew(place, birth, b"one", TTL)
    await bench.leases.free(place, birth, b"one")
    assert await may_write(bench, place, b"two")


async def test_the_same_taking_may_be_repeated(bench: Bench) -> None:
    place, birth = await held(bench)
    bench.clock.move(20)
    assert await bench.leases.take(place, birth, b"one", TTL) is None
    bench.clock.move(20)
    assert await may_write(bench, place)


async def test_without_a_lease_nobody_writes_under_one(bench: Bench) -> None:
    place, birth = await held(bench)
    await bench.leases.free(place, birth, b"one")
    assert not await may_write(bench, place)
    assert isinstance(await bench.try_write(place, put("k", "1")), Written), "other handles may"


async def test_a_clock_that_is_set_back_a_little_makes_the_lease_last_and_lets_nobody_else_in(bench: Bench) -> None:
    place, birth = await held(bench)
    bench.clock.move(-HOUR)
    assert await may_write(bench, place)
    assert await bench.leases.take(place, birth, b"two", TTL) == pytest.approx(HOUR + TTL)


async def test_a_lease_dated_absurdly_far_ahead_is_over(bench: Bench) -> None:
    place, birth = await held(bench)
    bench.clock.move(-25 * HOUR)
    assert not await may_write(bench, place)
    assert await bench.leases.take(place, birth, b"two", TTL) is None
    assert await may_write(bench, place, b"two")


async def test_a_lease_is_of_one_life(bench: Bench) -> None:
    place, birth = await held(bench)
    bench.clock.move(1)
    await bench.delete(place)
    assert bench.ask("HGET", place.control, f"l:{place.ref.member}") is None
    with pytest.raises(Gone):
        await bench.leases.renew(place, birth, b"one", TTL)
    await bench.create(place)
    for action in (bench.leases.take, bench.leases.renew):
        with pytest.raises(Gone):
            await action(place, birth, b"one", TTL)
    assert not await may_write(bench, place)


async def test_a_lease_of_an_earlier_life_that_was_left_behind_is_nobodys(bench: Bench) -> None:
    place, _ = await held(bench)
    left = bench.ask("HGET", place.control, f"l:{place.ref.member}")
    bench.clock.move(1)
    await bench.delete(place)
    await bench.create(place)
    bench.ask("HSET", place.control, f"l:{place.ref.member}", left)
    assert not await may_write(bench, place)
    assert await bench.leases.take(place, bench.field(place, "b"), b"two", TTL) is None


async def test_r17_a_lease_is_of_one_incarnation(bench: Bench) -> None:
    place, birth = await held(bench)
    bench.fail_over()
    with pytest.raises(Unready) as why:
        await bench.leases.renew(place, birth, b"one", TTL)
    assert why.value.need is Need.REGISTER
    await bench.register()
    with pytest.raises(Unready) as why:
        await bench.leases.take(place, birth, b"two", TTL)
    assert why.value.need is Need.REVALIDATE
    await bench.merge(place)
    assert not await may_write(bench, place), "what the new primary has been told is not known"
    assert not await bench.leases.renew(place, birth, b"one", TTL)
    assert await bench.leases.take(place, birth, b"two", TTL) is None


async def test_the_lease_of_one_session_is_not_that_of_another(bench: Bench) -> None:
    place, _ = await held(bench)
    other = bench.session("other")
    await bench.create(other)
    assert await may_write(bench, place)
    assert not await may_write(bench, other)
    assert await bench.leases.take(other, bench.field(other, "b"), b"two", TTL) is None


async def test_a_lease_is_forgotten_an_hour_after_its_end_and_not_before(bench: Bench) -> None:
    place, _ = await held(bench)
    bench.clock.move(TTL + HOUR)
    assert await bench.backlog.forget_silent([place.ref.bucket]) == 0
    bench.clock.move(0.000_001)
    assert await bench.backlog.forget_silent([place.ref.bucket]) == 1
    assert not bench.ask("HEXISTS", place.control, f"l:{place.ref.member}")


async def test_retention_keeps_a_session_as_long_as_a_runner_has_leased_it(bench: Bench) -> None:
    place, _ = await held(bench)
    await bench.flush(place)
    bench.clock.move(TTL - 1)
    kept = await bench.hot.delete(place, unused_since=bench.clock.micros)
    assert kept.written is None
    bench.clock.move(1)
    assert (await bench.hot.delete(place, unused_since=bench.clock.micros)).existed


async def test_retention_keeps_a_leased_session_that_was_evicted(bench: Bench) -> None:
    place, _ = await held(bench)
    stored = bench.stored(place)
    await bench.flush(place)
    bench.ask("DEL", place.hash)
    bench.clock.move(TTL - 1)
    token = await bench.take_token(place)
    kept = await bench.hot.bury(place, token, stored, unused_since=bench.clock.micros)
    assert (kept.written, bench.ask("EXISTS", place.hash)) == (None, 0)
    bench.clock.move(1)
    token = await bench.take_token(place)
    assert (await bench.hot.bury(place, token, stored, unused_since=bench.clock.micros)).existed


async def test_r4_a_copy_of_the_taking_that_comes_after_the_lease_was_given_back_takes_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = bench.session()
    birth = (await bench.create(place)).revision
    sent = bench.record_calls(monkeypatch)
    assert await bench.leases.take(place, birth, b"one", TTL) is None
    await bench.leases.free(place, birth, b"one")
    bench.clock.move(LIFETIME - 1)
    assert await sent.again(0) == [b"taken", 0]
    assert not bench.ask("HEXISTS", place.control, f"l:{place.ref.member}")
    assert await bench.leases.take(place, birth, b"two", TTL) is None


async def test_r4_a_taking_that_comes_after_it_was_given_up_takes_nothing(bench: Bench) -> None:
    place = bench.session()
    birth = (await bench.create(place)).revision
    await bench.leases.free(place, birth, b"one")
    assert await bench.leases.take(place, birth, b"one", TTL) == 0
    assert await bench.leases.take(place, birth, b"two", TTL) is None


async def test_a_fork_under_a_lease_needs_it(bench: Bench) -> None:
    place, birth = await held(bench)
    forking = Forking(bench.hot)
    spaces = await forking.spaces(place, birth)

    def fork(name: str, lease: bytes) -> Fork:
        return Fork(place, bench.session(name), spaces, lease=lease)

    assert isinstance(await forking.fork(fork("held", b"one"), token=b"*", known=ZERO), Written)
    assert await forking.fork(fork("other", b"two"), token=b"*", known=ZERO) == Refused("lease", [])
    bench.clock.move(TTL)
    assert await forking.fork(fork("late", b"one"), token=b"*", known=ZERO) == Refused("lease", [])
    assert [bench.ask("EXISTS", bench.session(name).hash) for name in ("held", "other", "late")] == [1, 0, 0]
