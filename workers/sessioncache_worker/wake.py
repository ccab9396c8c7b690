"""Wake-ups: buckets that got their first dirt are announced over a channel; what is missed is found by the sweep."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

from redis.asyncio import Redis
from redis.exceptions import RedisError

from sessioncache.hot.layout import Layout

logger = logging.getLogger(__name__)

_LISTEN = 30.0
"""Seconds of silence after which the connection is looked at."""


async def listen(client: Redis, layout: Layout, heard: Callable[[int | None], None]) -> None:
    """Call `heard` with each bucket that is announced, and with None (all of them) when some may have been missed."""
    while True:
        try:
            async with client.pubsub() as channel:
                await channel.subscribe(layout.wake_channel.encode())
                heard(None)
                while True:
                    message = await channel.get_message(ignore_subscribe_messages=True, timeout=_LISTEN)
                    if message is not None and message["type"] == "message":
                        data = message["data"]
                        heard(layout.bucket_of_base(data.encode() if isinstance(data, str) else data))
        except (RedisError, OSError) as error:
            logger.debug("the wake-up channel broke: %s", type(error).__name__)
            await asyncio.sleep(random.uniform(0.2, 1.0))
