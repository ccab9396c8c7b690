"""On uvloop all is as on asyncio's own loop: connections shared, cut, late and encrypted, watches, the worker."""

from __future__ import annotations

import asyncio

import pytest
import uvloop
from redis.asyncio import Redis
from sessioncache_worker import FlushWorker

from sessioncache import SessionCache
from sessioncache.durable.engine import create_engine
from tests.client.test_broken_connections import (
    cache,
    made,
    proxy,
    test_a_create_and_a_delete_whose_answer_was_cut_off_succeed_once,
    test_a_read_whose_connection_was_cut_is_repeated,
    test_a_write_whose_answer_was_cut_off_is_repeated_and_applied_once,
    test_closing_amid_a_call_leaves_no_connection_open,
    test_connections_cut_while_idle_are_not_noticed,
)
from tests.client.test_connections import (
    link,
    test_a_call_that_is_cancelled_before_it_left_is_not_sent,
    test_a_closed_link_lets_calls_under_way_end_and_takes_no_more,
    test_a_cut_connection_ends_every_call_that_was_sent_over_it,
    test_after_a_time_out_the_next_call_has_another_connection,
    test_each_call_has_a_time_of_its_own_and_the_late_connection_serves_who_waits,
    test_replies_of_one_megabyte_and_small_ones_come_in_their_order,
)
from tests.client.test_tls import test_everything_works_over_tls, tls_url
from tests.helpers import Urls, session, stored_values
from tests.waiting import stretched

__all__ = [
    "cache",
    "link",
    "made",
    "proxy",
    "test_a_call_that_is_cancelled_before_it_left_is_not_sent",
    "test_a_closed_link_lets_calls_under_way_end_and_takes_no_more",
    "test_a_create_and_a_delete_whose_answer_was_cut_off_succeed_once",
    "test_a_cut_connection_ends_every_call_that_was_sent_over_it",
    "test_a_read_whose_connection_was_cut_is_repeated",
    "test_a_write_whose_answer_was_cut_off_is_repeated_and_applied_once",
    "test_after_a_time_out_the_next_call_has_another_connection",
    "test_closing_amid_a_call_leaves_no_connection_open",
    "test_connections_cut_while_idle_are_not_noticed",
    "test_each_call_has_a_time_of_its_own_and_the_late_connection_serves_who_waits",
    "test_everything_works_over_tls",
    "test_replies_of_one_megabyte_and_small_ones_come_in_their_order",
    "tls_url",
]

pytestmark = pytest.mark.alone


async def test_the_worker_and_watches_run_on_uvloop(urls: Urls) -> None:
    assert isinstance(asyncio.get_running_loop(), uvloop.Loop)
    client, engine = Redis.from_url(urls.redis), create_engine(urls.database)
    async with FlushWorker(client, engine, flush_delay=0.01):
        over = SessionCache(client, engine, app="app", timeout=stretched(5.0))
        writer = await over.create("ada", session_id="s1", state={"n": 0})
        found = await over.get("ada", "s1")
        async with found.watch() as changes:
            await asyncio.gather(*(writer.increment("n") for _ in range(100)))
            told = [await anext(changes) for _ in range(3)]
        await writer.flush(10)
    assert [change.keys for change in told] == [("n",)] * 3
    assert stored_values(urls.database, session("ada", "s1")) == {"n": 100}
    await over.aclose()
    await client.aclose()
    await engine.dispose()
