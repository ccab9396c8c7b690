"""R5: a call that is repeated reaches the life of the session that it was meant for, or none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from sessioncache.errors import OutcomeUnknownError
from sessioncache.hot.layout import Place
from sessioncache.hot.messages import Part, Touch
from sessioncache.hot.signals import Gone
from tests.both_tiers.test_idempotency import Meanwhile, lose_an_answer
from tests.scripts.bench import Bench, add, push, put
from tests.scripts.spaces import load

Change = Callable[[Bench, Place, bytes], Awaitable[object]]


async def _touch(bench: Bench, place: Place, birth: bytes) -> object:
    return await bench.hot.touch(Part(place, birth=birth), Touch(1))


async def _touch_any(bench: Bench, place: Place, birth: bytes) -> object:
    return await bench.hot.touch(Part(place), Touch(1))


async def _set(bench: Bench, place: Place, birth: bytes) -> object:
    return await bench.write_parts([Part(place, [put("k", "1")], birth)])


async def _increment(bench: Bench, place: Place, birth: bytes) -> object:
    return await bench.write_parts([Part(place, [add("n", "1")], birth)])


async def _append(bench: Bench, place: Place, birth: bytes) -> object:
    return await bench.write_parts([Part(place, [push("l", "1")], birth)])


async def _write_user(bench: Bench, place: Place, birth: bytes) -> object:
    return await bench.write_parts([Part(place, (), birth), Part(bench.user(), [put("k", "1")])])


async def _write_space(bench: Bench, place: Place, birth: bytes) -> object:
    return await bench.write_parts([Part(place, (), birth), Part(bench.space(), [put("k", "1")])])


CHANGES: dict[str, Change] = {
    "touch": _touch,
    "touch of any life": _touch_any,
    "set": _set,
    "increment": _increment,
    "append": _append,
    "shared": _write_user,
    "namespace": _write_space,
}


def _delete(bench: Bench, *, anew: bool) -> Meanwhile:
    async def delete() -> None:
        bench.clock.move(1)
        await bench.delete(bench.session())
        if anew:
            await bench.create(bench.session(), put("k", '"new"'), token=b"")

    return delete


@pytest.mark.parametrize("anew", [True, False])
@pytest.mark.parametrize("name", CHANGES)
async def test_r5_a_repeat_whose_first_try_was_applied_is_refused_by_another_life(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str, anew: bool
) -> None:
    place = bench.session()
    birth = (await bench.create(place)).revision
    await bench.install(bench.user())
    await load(bench, bench.space())
    lose_an_answer(bench, monkeypatch, _delete(bench, anew=anew))
    with pytest.raises(Gone):
        await CHANGES[name](bench, place, birth)
    if anew:
        assert await bench.values(place) == {"k": b'"new"'}


async def test_r5_a_clock_that_is_set_back_does_not_hide_another_life(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = bench.session()
    birth = (await bench.create(place)).revision
    bench.clock.move(60)

    async def another_life() -> None:
        bench.clock.move(-30)
        await _delete(bench, anew=True)()

    lose_an_answer(bench, monkeypatch, another_life)
    with pytest.raises(Gone):
        await bench.write_parts([Part(place, (), birth), Part(place, [put("k", "1")], temp=True)])


async def test_r4_a_touch_whose_session_was_evicted_before_its_repeat_is_told_to_be_applied(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = bench.session()
    birth = (await bench.create(place)).revision

    async def evict() -> None:
        await bench.flush(place)
        bench.ask("DEL", place.hash)

    lose_an_answer(bench, monkeypatch, evict)
    with pytest.raises(OutcomeUnknownError):
        await bench.hot.touch(Part(place, birth=birth), Touch(1))


async def test_r4_a_touch_that_is_repeated_in_its_life_answers_what_is_there(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = bench.session()
    birth = (await bench.create(place)).revision
    lose_an_answer(bench, monkeypatch)
    _, head = await bench.hot.touch(Part(place, birth=birth), Touch(2))
    assert (head[b"b"], head[b"m"]) == (birth, b"2")


@pytest.mark.parametrize("by", ["1", "-7", "0.25"])
async def test_r4_the_number_that_an_increment_led_to_is_remembered(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    place = bench.user()
    await bench.install(place)

    async def others() -> None:
        await bench.write(place, put("n", "1000"))

    lose_an_answer(bench, monkeypatch, others)
    written = await bench.write(place, add("n", by))
    assert written.parts[0].results == [by.encode()]
    assert (await bench.values(place))["n"] == b"1000"


async def test_r4_a_number_too_long_to_remember_is_read_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    place, number = bench.user(), "9" * 500
    await bench.install(place)
    lose_an_answer(bench, monkeypatch)
    assert (await bench.write(place, add("n", number))).parts[0].results == [number.encode()]
    remembered = b"".join(bench.ask("HVALS", bench.key(place, "ops:0")))
    assert number.encode() not in remembered
