"""The ambient session: whose it is, and when it ends."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager

import pytest

from sessioncache import NoSessionError, current_session
from sessioncache.current import bound
from tests.waiting import stretched


class Bindable:
    """Something that may be bound: the binding asks nothing of it."""


def ambient() -> object:
    """What is bound here; None where nothing is."""
    try:
        return current_session()
    except NoSessionError:
        return None


def test_outside_of_every_block_there_is_no_session() -> None:
    with pytest.raises(NoSessionError, match="no session is bound") as caught:
        current_session()
    assert isinstance(caught.value, LookupError)


def test_blocks_nest_and_restore_the_previous_session() -> None:
    one, two = Bindable(), Bindable()
    with bound(one) as given:
        assert given is one is ambient()
        with bound(two):
            assert ambient() is two
            with bound(one):
                assert ambient() is one
            assert ambient() is two
        assert ambient() is one
    assert ambient() is None


def test_an_exception_restores_the_previous_session_and_goes_on() -> None:
    one, two = Bindable(), Bindable()
    with bound(one):
        with pytest.raises(RuntimeError, match="inside"), bound(two):
            raise RuntimeError("inside")
        assert ambient() is one
    assert ambient() is None


def test_blocks_may_be_left_in_another_order() -> None:
    one, two = Bindable(), Bindable()
    first, second = bound(one), bound(two)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert ambient() is two
    second.__exit__(None, None, None)
    assert ambient() is None


def test_of_two_blocks_of_one_session_each_ends_its_own() -> None:
    one, two = Bindable(), Bindable()
    outer, inner = bound(one), bound(one)
    outer.__enter__()
    with bound(two):
        inner.__enter__()
        inner.__exit__(None, None, None)
        assert ambient() is two
    assert ambient() is one
    outer.__exit__(None, None, None)


def test_a_thread_begins_with_no_session_and_keeps_its_own() -> None:
    mine, theirs, seen = Bindable(), Bindable(), list[object]()

    def work() -> None:
        seen.append(ambient())
        with bound(theirs):
            seen.append(ambient())
            both_bound.wait(stretched(10))
            left.wait(stretched(10))
            seen.append(ambient())

    both_bound, left = threading.Barrier(2), threading.Event()
    thread = threading.Thread(target=work)
    with bound(mine):
        thread.start()
        both_bound.wait(stretched(10))
        assert ambient() is mine
    left.set()
    thread.join(stretched(10))
    assert seen == [None, theirs, theirs]


def test_a_pool_hands_a_session_on_only_by_a_copied_context() -> None:
    with ThreadPoolExecutor(1) as pool, bound(Bindable()) as mine:
        assert pool.submit(ambient).result(stretched(10)) is None
        assert pool.submit(contextvars.copy_context().run, ambient).result(stretched(10)) is mine
        assert pool.submit(ambient).result(stretched(10)) is None


async def test_to_thread_hands_the_session_on() -> None:
    with bound(Bindable()) as mine:
        assert await asyncio.to_thread(ambient) is mine
    assert await asyncio.to_thread(ambient) is None


async def test_sibling_tasks_do_not_see_each_others_session() -> None:
    barrier = asyncio.Barrier(20)

    async def work() -> bool:
        before = ambient()
        with bound(Bindable()) as mine:
            await barrier.wait()
            same = ambient() is mine
            await barrier.wait()
        return same and before is None and ambient() is None

    assert all(await asyncio.gather(*(work() for _ in range(20))))
    assert ambient() is None


async def test_a_task_made_within_inherits_and_keeps_the_session() -> None:
    left = asyncio.Event()
    seen: list[object] = []

    async def work() -> None:
        seen.append(ambient())
        with bound(Bindable()):
            await left.wait()
        seen.append(ambient())

    with bound(Bindable()) as mine:
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        assert ambient() is mine
    assert ambient() is None
    left.set()
    await task
    assert seen == [mine, mine]


async def test_a_block_of_an_async_context_manager_binds_for_its_caller() -> None:
    @asynccontextmanager
    async def resume() -> AsyncIterator[object]:
        with bound(Bindable()) as session:
            yield session

    async with resume() as mine, resume() as second:
        assert ambient() is second is not mine
    assert ambient() is None


async def test_a_block_may_be_left_in_another_task_than_it_was_entered() -> None:
    @contextmanager
    def block() -> Iterator[object]:
        with bound(Bindable()) as session:
            yield session

    entered = block()

    async def enter() -> object:
        return entered.__enter__()

    await asyncio.create_task(enter())
    assert ambient() is None
    entered.__exit__(None, None, None)
    assert ambient() is None


async def test_a_cancelled_task_leaves_nothing_bound() -> None:
    bound_there, seen = asyncio.Event(), list[object]()

    async def work() -> None:
        try:
            with bound(Bindable()):
                bound_there.set()
                await asyncio.Event().wait()
        finally:
            seen.append(ambient())

    task = asyncio.create_task(work())
    await bound_there.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert seen == [None]


def test_a_session_is_not_kept_alive_after_its_block() -> None:
    deleted = threading.Event()

    class Watched:
        def __del__(self) -> None:
            deleted.set()

    with bound(Watched()):
        pass
    gc.collect()
    assert deleted.is_set()
