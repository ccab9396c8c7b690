"""Heartbeats of workers: noted by the clock of Redis, forgotten when a worker ends or falls silent."""

from __future__ import annotations

from tests.scripts.bench import START, Bench


async def test_a_worker_that_lives_is_known_with_the_time_of_its_last_heartbeat(bench: Bench) -> None:
    await bench.backlog.beat("one", "{}")
    bench.clock.move(5)
    await bench.backlog.beat("one", "{}")
    assert await bench.backlog.heartbeats() == {"one": START + 5_000_000}


async def test_a_worker_that_has_ended_is_forgotten(bench: Bench) -> None:
    await bench.backlog.beat("one", "{}")
    await bench.backlog.beat("two", "{}")
    await bench.backlog.beat("one", "", ended=True)
    assert set(await bench.backlog.heartbeats()) == {"two"}


async def test_a_worker_is_forgotten_after_an_hour_of_silence_and_not_before(bench: Bench) -> None:
    await bench.backlog.beat("silent", "{}")
    bench.clock.move(1)
    await bench.backlog.beat("other", "{}")
    bench.clock.move(3599)
    assert await bench.backlog.forget_silent([0]) == 0
    bench.clock.move(1)
    assert await bench.backlog.forget_silent([0]) == 1
    assert set(await bench.backlog.heartbeats()) == {"other"}
