"""R4: a call is applied once, however often it is delivered, and only under the incarnation that its sender knew."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest

from sessioncache.errors import OutcomeUnknownError
from sessioncache.hot.client import Argument, HotClient, Reply
from sessioncache.hot.errors import unanswered
from sessioncache.hot.messages import ABSENT, Refused
from sessioncache.hot.scripts import Script
from sessioncache.settings import OPERATION_ID_LIFETIME
from tests.scripts.bench import Bench, add, drop, put

Meanwhile = Callable[[], Awaitable[None]]


class LosesOneAnswer:
    """A link that carries a call out and loses its answer; the next call gets through."""

    def __init__(self, link: HotClient, meanwhile: Meanwhile | None = None) -> None:
        self._call = link.call
        self._meanwhile = meanwhile
        self.calls = 0

    async def __call__(self, script: Script, keys: Sequence[bytes], args: Sequence[Argument]) -> Reply:
        """Send a call."""
        self.calls += 1
        if self.calls > 1:
            return await self._call(script, keys, args)
        await self._call(script, keys, args)
        if self._meanwhile is not None:
            await self._meanwhile()
        raise unanswered("the answer was lost")


def lose_an_answer(bench: Bench, monkeypatch: pytest.MonkeyPatch, meanwhile: Meanwhile | None = None) -> LosesOneAnswer:
    """Lose the answer of the next call; `meanwhile` comes before its sender sends it again."""
    link = LosesOneAnswer(bench.link, meanwhile)
    monkeypatch.setattr(bench.link, "call", link)
    return link


async def test_a_call_whose_answer_was_lost_is_applied_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    place = bench.user()
    await bench.install(place)
    await bench.write(place, put("n", "1"))
    link = lose_an_answer(bench, monkeypatch)
    written = await bench.write(place, add("n", "1"))
    assert (link.calls, written.parts[0].results) == (2, [b"2"])
    assert bench.field(place, "=n")[9:] == b"2"


async def test_a_delete_whose_answer_was_lost_says_that_the_session_existed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = bench.session()
    birth = (await bench.create(place)).revision
    lose_an_answer(bench, monkeypatch)
    existed, _ = await bench.delete(place, birth)
    assert existed


async def test_an_operation_is_remembered_for_its_lifetime_whichever_generation_it_fell_into(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = bench.user()
    await bench.install(place)
    sent = bench.record_calls(monkeypatch)
    for number in range(1, 5):
        await bench.write(place, add(f"n{number}", "1"))
        for _ in range(round(0.7 * OPERATION_ID_LIFETIME / 5)):  # what counts of a gap is 5 s at most
            bench.clock.move(5)
            await bench.write(place, add("other", "1"))
        first = -1 - round(0.7 * OPERATION_ID_LIFETIME / 5)
        assert (await sent.again(first))[2][3] == [b"1"], "the reply that it had"
        assert bench.field(place, f"=n{number}")[9:] == b"1"


async def test_a_copy_of_a_refused_call_that_comes_late_changes_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = bench.user()
    await bench.install(place)
    await bench.write(place, put("k", "1"))
    sent = bench.record_calls(monkeypatch)
    assert isinstance(await bench.try_write(place, put("k", "2", ABSENT)), Refused)
    await bench.write(place, drop("k"))
    assert (await sent.again(-2))[0] == b"stale"
    assert len(bench.field(place, "=k")) == 9, "the key stays deleted"


async def test_a_call_is_not_repeated_in_another_incarnation(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    place = bench.user()
    await bench.install(place)
    await bench.write(place, put("n", "0"))

    async def forget() -> None:
        await start_anew(bench)
        await bench.install(place)

    lose_an_answer(bench, monkeypatch, forget)
    with pytest.raises(OutcomeUnknownError):
        await bench.write(place, add("n", "1"))
    assert bench.field(place, "=n") == b""


async def test_a_delete_is_not_repeated_in_another_incarnation(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    place = bench.session()
    birth = (await bench.create(place)).revision

    async def forget() -> None:
        await start_anew(bench)
        await bench.create(place)

    lose_an_answer(bench, monkeypatch, forget)
    with pytest.raises(OutcomeUnknownError):
        await bench.delete(place, b"")
    assert bench.field(place, "x") == b""
    assert bench.field(place, "b") != birth


async def start_anew(bench: Bench) -> None:
    """Redis has forgotten everything, and SQL knows it."""
    bench.raw.flushall()
    bench.clock.move(1)
    bench.fail_over("cc")
    await bench.register()
