"""R4: a call is applied once, however often and however late a network delivers it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sessioncache.errors import OutcomeUnknownError
from sessioncache.hot.backlog import Backlog
from sessioncache.hot.layout import Place
from sessioncache.hot.messages import Operation, Part, Refused, Written
from sessioncache.hot.signals import Gone, Taken, Unready
from sessioncache.settings import OPERATION_ID_LIFETIME
from tests.scripts.bench import BUCKETS, Bench, Sent, add, drop, push, put

LIFETIME = OPERATION_ID_LIFETIME
CALLS = {
    "set": put("k", "[9]"),
    "delete": drop("k"),
    "append": push("k", "9", '"\\u0007/é\x7f"'),
    "increment": add("n", "1"),
}


async def a_user(bench: Bench) -> Place:
    """A user's scope with a list and a number."""
    place = bench.user()
    await bench.install(place)
    await bench.write(place, put("k", "[1]"), put("n", "1"))
    return place


async def others_write(bench: Bench, seconds: float, *, step: float = 20) -> None:
    """Time passes while others write to the bucket."""
    for _ in range(int(seconds / step)):
        bench.clock.move(step)
        await bench.write(bench.user(), put("others", "1"))


@pytest.mark.parametrize("name", CALLS)
async def test_a_repeat_answers_the_first_reply_and_changes_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    place = await a_user(bench)
    sent = bench.record_calls(monkeypatch)
    written = await bench.write(place, CALLS[name])
    values = await bench.values(place)
    bench.clock.move(1)
    _, revision, (incarnation, flushed, changed, results) = await sent.again(-2)
    (part,) = written.parts
    assert (revision, incarnation, flushed) == (written.revision, part.incarnation, part.flushed_through)
    assert (changed == 1, results) == (part.changed, part.results)
    assert await bench.values(place) == values


async def test_a_first_copy_that_comes_after_its_repeat_does_not_apply_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = await a_user(bench)
    sent = bench.record_calls(monkeypatch)
    await bench.write(place, add("n", "1"))
    await bench.write(place, put("n", "7"))
    await sent.again(-2)
    assert (await bench.values(place))["n"] == b"7"


async def test_two_calls_that_are_alike_are_two_calls(bench: Bench) -> None:
    place = await a_user(bench)
    for _ in range(2):
        await bench.write(place, add("n", "1"))
    assert (await bench.values(place))["n"] == b"3"


async def test_a_call_that_changed_nothing_is_over_too(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    place = await a_user(bench)
    sent = bench.record_calls(monkeypatch)
    await bench.write(place, drop("none"))
    await bench.write(place, put("none", "1"))
    await sent.again(-2)
    assert (await bench.values(place))["none"] == b"1"


async def test_a_repeat_under_another_incarnation_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    place = await a_user(bench)
    sent = bench.record_calls(monkeypatch)
    await bench.write(place, add("n", "1"))
    bench.fail_over()
    incarnation = (await bench.register())[place.ref.bucket]
    assert await sent.again(0) == [b"incarnation", incarnation.encode()]


async def test_a_call_that_knows_an_older_incarnation_learns_the_new_one_and_is_applied(bench: Bench) -> None:
    place = await a_user(bench)
    bench.fail_over()
    await bench.register()
    bench.ask("HSET", place.hash, "i", bench.ask("HGET", place.control, "incarnation"))
    assert (await bench.write(place, add("n", "1"))).parts[0].results == [b"2"]


async def test_no_value_is_remembered_and_the_result_of_a_copy_is_read_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = await a_user(bench)
    sent = bench.record_calls(monkeypatch)
    await bench.write(place, push("k", '"marker"'))
    remembered = b"".join(b"".join(bench.ask("HVALS", bench.key(place, f"ops:{i}"))) for i in range(2))
    assert b"marker" not in remembered
    again = await sent.again()
    assert again[0] == b"ok"
    assert again[2][3] == [b'[1,"marker"]']
    await bench.write(place, push("k", "1"))
    assert await sent.again(0) == [b"applied"], "what it was then is not known any more"


async def test_a_refusal_that_the_client_computes_on_is_remembered_without_the_value(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = await a_user(bench)
    await bench.write(place, put("n", "0.25"))
    sent = bench.record_calls(monkeypatch)
    assert isinstance(await bench.try_write(place, Operation(b"I", "n", b"1")), Refused)
    assert await sent.again() == [b"stale", 1, 1]


async def test_the_caller_is_told_where_a_result_is_not_known_any_more(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = await a_user(bench)
    ids = iter((b"the same id", b"another id", b"the same id"))
    monkeypatch.setattr("sessioncache.hot.idempotency._new_id", lambda: next(ids))
    await bench.write(place, push("k", "0"))
    await bench.write(place, push("k", "1"))
    with pytest.raises(OutcomeUnknownError):
        await bench.write(place, push("k", "0"))


async def test_a_create_is_applied_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    place = bench.session()
    sent = bench.record_calls(monkeypatch)
    created = await bench.create(place, put("k", "1"))
    await bench.write(place, put("k", "2"))
    assert (await sent.again(0))[1] == created.revision, "the first reply, and not that there is one"
    await bench.delete(place, b"")
    assert (await sent.again(0))[1] == created.revision
    assert bench.field(place, "x"), "the copy brings nothing back"


async def test_a_delete_of_a_session_is_applied_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    place = bench.session()
    await bench.create(place)
    sent = bench.record_calls(monkeypatch)
    existed, deleted = await bench.delete(place, b"")
    await bench.create(place, put("k", "new"))
    status, told, revision, *_ = await sent.again(0)
    assert (status, told == 1, revision) == (b"ok", existed, deleted.revision)
    assert await bench.values(place) == {"k": b"new"}


async def test_a_late_copy_of_a_write_that_found_its_scope_cold_does_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = bench.user()
    sent = bench.record_calls(monkeypatch)
    with pytest.raises(Unready):
        await bench.write(place, add("n", "1"))
    late = len(sent)
    await bench.install(place)
    await bench.write(place, add("n", "1"))
    await sent.again(late - 1)
    assert await bench.values(place) == {"n": b"1"}


async def test_a_late_copy_of_a_refused_write_does_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    place = await a_user(bench)
    sent = bench.record_calls(monkeypatch)
    refused = await bench.try_write(place, put("n", "5", b""))
    assert not isinstance(refused, Written), "the key is there"
    await bench.write(place, drop("n"))
    assert await sent.again(0) == [b"stale", 1, 1]
    assert "n" not in await bench.values(place)


async def test_a_late_copy_of_a_delete_that_found_its_session_cold_does_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = bench.session()
    sent = bench.record_calls(monkeypatch)
    with pytest.raises(Unready):
        await bench.delete(place, b"")
    late = len(sent)
    await bench.create(place)
    await sent.again(late - 1)
    assert not bench.field(place, "x")


async def test_a_late_copy_of_a_create_that_was_refused_creates_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = bench.session()
    await bench.create(place)
    sent = bench.record_calls(monkeypatch)
    with pytest.raises(Taken):
        await bench.create(place, token=b"")
    await bench.delete(place, b"")
    await sent.again(0)
    assert bench.field(place, "x")


async def test_a_late_copy_of_a_write_to_an_earlier_life_does_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = bench.session()
    birth = (await bench.create(place)).revision
    sent = bench.record_calls(monkeypatch)
    await bench.delete(place, b"")
    with pytest.raises(Gone):
        await bench.write_parts([Part(place, [put("k", "1")], birth)])
    await bench.create(place)
    await sent.again(1)
    assert await bench.values(place) == {}


@pytest.mark.parametrize("phase", [0, 1, 60, 119])
async def test_an_id_lives_its_lifetime_whenever_it_came(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, phase: int
) -> None:
    place = await a_user(bench)
    bench.clock.move(phase)
    sent = bench.record_calls(monkeypatch)
    await bench.write(place, add("n", "1"))
    await others_write(bench, LIFETIME - 1, step=1)
    await sent.again(0)
    assert (await bench.values(place))["n"] == b"2"


@pytest.mark.parametrize("jump", [-365 * 86_400, -1_000, -1, 1, 130, 1_000, 365 * 86_400])
@pytest.mark.parametrize("phase", [1, 60, 119])
async def test_an_id_lives_its_lifetime_when_the_clock_is_set(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, jump: int, phase: int
) -> None:
    place = await a_user(bench)
    sent = bench.record_calls(monkeypatch)
    await bench.write(place, add("n", "1"))
    bench.clock.move(jump + phase)
    await others_write(bench, LIFETIME - 2 - phase, step=1)
    await sent.again(0)
    assert (await bench.values(place))["n"] == b"2"


STEPS = (-86_400, -600, -1, 120, 86_400)
CALL = LIFETIME // 2
"""Seconds of the longest time-out of a call."""


async def outlives(bench: Bench, sent: Sent, steps: Callable[[int], int], slot: int = 4) -> bool:
    """Whether a copy of a call changes nothing at the end of its time-out; `steps`: of the clock, at each slot."""
    number = len(sent)
    await bench.write(bench.user(), add("n", "1"))
    for at in range(CALL // slot):
        bench.clock.move(slot + steps(at))
        await bench.write(bench.user(), put("others", "1"))
    before = await bench.values(bench.user())
    await sent.again(number)
    return await bench.values(bench.user()) == before


@pytest.mark.parametrize("second", STEPS)
@pytest.mark.parametrize("first", STEPS)
async def test_an_id_outlives_its_call_wherever_the_clock_steps(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, first: int, second: int
) -> None:
    """At any age of a generation: just before and after one takes its turn, too."""
    await a_user(bench)
    sent = bench.record_calls(monkeypatch)
    for age, one, other in ((LIFETIME - 1, 0, 3), (LIFETIME - 1, 1, 1)):
        await others_write(bench, age, step=4)
        assert await outlives(bench, sent, lambda at: first * (at == one) + second * (at == other))  # noqa: B023


@pytest.mark.parametrize("step", STEPS)
async def test_an_id_outlives_its_call_though_the_clock_steps_again_and_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    await a_user(bench)
    sent = bench.record_calls(monkeypatch)
    for age in (0, LIFETIME - 1):
        await others_write(bench, age, step=4)
        assert await outlives(bench, sent, lambda at: step * (at % 2))


@pytest.mark.parametrize("jump", [0, -365 * 86_400, 365 * 86_400])
async def test_ids_are_forgotten_in_the_end(bench: Bench, jump: int) -> None:
    place = await a_user(bench)
    bench.clock.move(jump)
    await others_write(bench, 5 * LIFETIME, step=4)
    held = sum(bench.ask("HLEN", bench.key(place, f"ops:{which}")) for which in "01")
    assert held <= 2 * LIFETIME / 4 + 2


class Looks:
    """A worker's looks at a bucket, by a clock of its own that nobody sets."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self._bench = bench
        self._now = 0.0
        monkeypatch.setattr("sessioncache.hot.backlog.monotonic", lambda: self._now)

    def pass_by(self, seconds: float, *, step: float = 0) -> None:
        """Let time pass, in which the clock of Redis is set `step` ahead."""
        self._now += seconds
        self._bench.clock.move(seconds + step)

    async def after(self, seconds: float, *, step: float = 0) -> None:
        """Look after so many seconds, in which the clock of Redis is set `step` ahead."""
        self.pass_by(seconds, step=step)
        await self._bench.backlog.forget_silent(range(BUCKETS))


def remembered(bench: Bench) -> int:
    """Operation ids that the bucket of a user's scope remembers."""
    held: int = sum(bench.ask("HLEN", bench.key(bench.user(), f"ops:{which}")) for which in "01")
    return held


async def test_a_bucket_that_falls_silent_forgets_all_ids(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    place = await a_user(bench)
    looks = Looks(bench, monkeypatch)
    await looks.after(1)
    for seconds in (LIFETIME, LIFETIME):
        assert remembered(bench) == 1
        await looks.after(seconds)
    assert remembered(bench) == 0
    assert not bench.ask("HEXISTS", place.control, "ops")
    await looks.after(LIFETIME)
    await bench.write(place, add("n", "1"))
    assert remembered(bench) == 1


@pytest.mark.parametrize("step", [-86_400, -600, 600, 86_400])
async def test_in_a_silent_bucket_an_id_lives_its_lifetime_when_the_clock_is_set(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    await a_user(bench)
    looks = Looks(bench, monkeypatch)
    await looks.after(LIFETIME)
    await looks.after(LIFETIME - 1)
    sent = bench.record_calls(monkeypatch)
    await bench.write(bench.user(), add("n", "1"))
    await looks.after(1, step=step)
    for seconds in (1, LIFETIME - 4):
        await looks.after(seconds, step=step)
    await sent.again(0)
    assert (await bench.values(bench.user()))["n"] == b"2"


async def test_what_passed_before_a_call_makes_ids_no_older(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await a_user(bench)
    looks, other = Looks(bench, monkeypatch), Backlog(bench.link, bench.layout, idle_ttl=1)
    await looks.after(1)
    await other.forget_silent(range(BUCKETS))
    looks.pass_by(LIFETIME)
    sent = bench.record_calls(monkeypatch)
    await bench.write(bench.user(), add("n", "1"))
    await looks.after(1)
    await bench.write(bench.user(), put("others", "1"))
    await other.forget_silent(range(BUCKETS))
    await sent.again(0)
    assert (await bench.values(bench.user()))["n"] == b"2"


async def test_of_several_workers_one_sees_ids_grow_old(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await a_user(bench)
    other = Backlog(bench.link, bench.layout, idle_ttl=1)
    looks = Looks(bench, monkeypatch)
    for _ in range(6):
        await looks.after(LIFETIME / 2)
        await other.forget_silent(range(BUCKETS))
    assert remembered(bench) == 0


async def test_each_bucket_remembers_its_own(bench: Bench) -> None:
    names = [str(number) for number in range(99)]
    places = [
        next(place for place in map(bench.user, names) if place.ref.bucket == bucket) for bucket in range(BUCKETS)
    ]
    for place in places:
        await bench.install(place)
        await bench.write(place, put("k", "1"))
    assert [bench.ask("HLEN", bench.key(place, "ops:0")) for place in places] == [1] * BUCKETS
