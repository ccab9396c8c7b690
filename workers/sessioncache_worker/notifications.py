"""Notifications: a bucket that becomes dirty is announced over a channel; the poll finds what is missed."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from typing import Any

from redis.asyncio.client import PubSub
from redis.exceptions import NoPermissionError, RedisError

from sessioncache.hot.client import HotClient
from sessioncache.hot.layout import Layout

logger = logging.getLogger(__name__)

_SILENCE = 15.0
"""Seconds without a message after which Redis is asked whether it is still there."""
_ANSWER = 5.0
"""Seconds in which it has to answer."""
_PAUSE = (0.2, 1.0)
"""Seconds before a broken connection is made anew."""


async def listen(link: HotClient, layout: Layout, heard: Callable[[int | None], None]) -> None:
    """Call `heard` with each bucket that is announced, and with None (all of them) when some may have been missed."""
    left = asyncio.Event()
    link.when_left(left.set)
    warned = False
    while True:
        left.clear()
        try:
            async with link.client.pubsub() as channel:
                await channel.subscribe(layout.wake_channel.encode())
                await _until(left, _hear(channel, layout, heard))
        except NoPermissionError:
            if not warned:
                logger.warning(
                    "the Redis user may not subscribe (&PREFIX:*): new writes are found by polling only, later"
                )
            # Without the right to subscribe nothing is lost: the poll finds it, only later.
            warned = True
            await asyncio.sleep(_SILENCE)
        except (RedisError, OSError) as error:
            logger.debug("the wake-up channel broke: %s", type(error).__name__)
            await asyncio.sleep(random.uniform(*_PAUSE))


async def _until(left: asyncio.Event, hearing: Coroutine[Any, Any, None]) -> None:
    """Listen until that breaks, or the server has been left: one that is no primary any more gets no announcements."""
    both = [asyncio.ensure_future(hearing), asyncio.ensure_future(left.wait())]
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if both[0].done():
            await both[0]
    finally:
        for one in both:
            one.cancel()
        await asyncio.gather(*both, return_exceptions=True)


async def _hear(channel: PubSub, layout: Layout, heard: Callable[[int | None], None]) -> None:
    """Listen over one connection, until it breaks.

    Only what is announced after Redis has confirmed the subscription is received, and a client that reconnects
    subscribes anew without a sign: each confirmation means that some may have been missed.
    """
    while True:
        message = await _next(channel)
        if message["type"] == "subscribe":
            heard(None)
        elif message["type"] == "message":
            data = message["data"]
            heard(layout.bucket_of_base(data.encode() if isinstance(data, str) else data))


async def _next(channel: PubSub) -> dict[str, Any]:
    """The next message.  OSError where the connection is half-open: its other end is gone without a word."""
    message = await channel.get_message(timeout=_SILENCE)
    # A connection whose other end is gone looks like one on which nothing is announced.
    if message is None:
        await channel.ping()
        message = await channel.get_message(timeout=_ANSWER)
    if message is None:
        raise OSError("no answer to PING")
    return dict(message)
