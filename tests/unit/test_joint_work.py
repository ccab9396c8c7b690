"""Joint work: what many calls ask for at once is done once, and none of them ends it for the others."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest

from sessioncache.coordination import joint_work
from sessioncache.coordination.joint_work import JointWork
from sessioncache.errors import ConfigurationError, DurableTierUnavailableError
from sessioncache.primitives.deadline import seconds_left, within

LONGEST = 20.0


class Held:
    """Work that waits until it is let go, and leaves the odd buckets."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error
        self.lots: list[list[int]] = []
        self.hurried: list[float] = []
        self.time = 0.0
        """Seconds that the latest lot may take."""
        self.begun = asyncio.Event()
        self.free = asyncio.Event()

    async def __call__(self, buckets: list[int], hurried: float) -> Collection[int]:
        self.lots.append(buckets)
        self.hurried.append(hurried)
        self.time = seconds_left()
        self.begun.set()
        await self.free.wait()
        if self._error:
            raise self._error
        return [bucket for bucket in buckets if bucket % 2]


async def begun(joint: JointWork, held: Held, *buckets: int) -> asyncio.Task[set[int]]:
    """A call whose work has begun."""
    task = asyncio.create_task(joint.do(buckets))
    await held.begun.wait()
    return task


async def test_what_is_asked_for_while_a_lot_is_worked_on_is_the_next_lot() -> None:
    held = Held()
    joint = JointWork(held, LONGEST)
    first = await begun(joint, held, 1, 2)
    others = [asyncio.create_task(joint.do([bucket, 4])) for bucket in (2, 3)]
    await asyncio.sleep(0)
    held.free.set()
    assert await first == {1}
    assert [await one for one in others] == [set(), {3}]
    assert held.lots == [[1, 2], [2, 3, 4]]


async def test_whose_time_is_over_leaves_the_work_to_the_others() -> None:
    held = Held()
    joint = JointWork(held, LONGEST)
    with within(0.05), pytest.raises(DurableTierUnavailableError, match="in time"):
        await joint.do([1])
    assert held.time > LONGEST / 2
    held.free.set()
    assert await joint.do([1]) == {1}


async def test_who_is_cancelled_leaves_the_work_to_the_others() -> None:
    held = Held()
    joint = JointWork(held, LONGEST)
    leader = asyncio.create_task(joint.do([1]))
    follower = asyncio.create_task(joint.do([2, 3]))
    await held.begun.wait()
    leader.cancel()
    held.free.set()
    assert await follower == {3}
    assert held.lots == [[1, 2, 3]]


async def test_an_error_reaches_each_caller_as_one_of_its_own_and_ends_with_the_lot() -> None:
    error = DurableTierUnavailableError("away")
    held = Held(error)
    joint = JointWork(held, LONGEST)
    calls = [asyncio.create_task(joint.do([bucket])) for bucket in (1, 2)]
    await held.begun.wait()
    held.free.set()
    met = await asyncio.gather(*calls, return_exceptions=True)
    assert [str(one) for one in met] == ["away", "away"]
    assert len({id(one) for one in (*met, error)}) == 3
    held._error = None
    assert await joint.do([1]) == {1}


async def test_the_work_is_told_how_much_time_the_most_hurried_has() -> None:
    held = Held()
    joint = JointWork(held, LONGEST)
    held.free.set()
    with within(8):
        patient = asyncio.create_task(joint.do([1]))
    with within(2):
        hurried = asyncio.create_task(joint.do([2]))
    await asyncio.gather(patient, hurried)
    assert 0 < held.hurried[0] <= 2


async def test_who_has_left_hurries_nobody() -> None:
    held = Held()
    joint = JointWork(held, LONGEST)
    first = await begun(joint, held, 1)
    with within(0.02), pytest.raises(DurableTierUnavailableError):
        await joint.do([2])
    with within(8):
        patient = asyncio.create_task(joint.do([3]))
    await asyncio.sleep(0)
    held.free.set()
    await asyncio.gather(first, patient)
    assert held.lots == [[1], [2, 3]]
    assert held.hurried[1] > 4


async def test_beside_a_lot_that_hangs_the_next_one_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint_work, "_APART", 0.01)
    hung, held = asyncio.Event(), Held()

    async def work(buckets: list[int], hurried: float) -> Collection[int]:
        if buckets == [1]:
            await hung.wait()
            return ()
        return await held(buckets, hurried)

    joint = JointWork(work, LONGEST)
    held.free.set()
    first = asyncio.create_task(joint.do([1]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert await joint.do([2, 3]) == {3}
    assert not first.done()
    hung.set()
    await first


async def test_closing_ends_what_is_under_way() -> None:
    held = Held()
    joint = JointWork(held, LONGEST)
    first = await begun(joint, held, 1)
    second = asyncio.create_task(joint.do([2]))
    await asyncio.sleep(0)
    await joint.aclose()
    for one in (first, second):
        with pytest.raises(ConfigurationError, match="closed"):
            await one
    held.free.set()
    assert await joint.do([1]) == {1}
