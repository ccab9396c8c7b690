"""Another client of a Redis: sends PING after PING, and tells the longest gap between two answers.

It is told the URL; each line on standard input begins a measuring, and the next one ends it: then it prints the gap in
milliseconds.
"""

from __future__ import annotations

import select
import sys
import time
from typing import Any

import redis


def longest_gap(connection: Any) -> float:
    """Seconds between two answers, at most, until there is a line to read."""
    longest, last = 0.0, time.perf_counter()
    while not select.select([sys.stdin], [], [], 0)[0]:
        _ping(connection)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    return longest


def _ping(connection: Any) -> None:
    connection.send_command("PING")
    connection.read_response()


def main() -> None:
    """Measure as often as asked."""
    connection = redis.Redis.from_url(sys.argv[1]).connection_pool.get_connection()
    while sys.stdin.readline():
        _ping(connection)
        print("begun", flush=True)
        gap = longest_gap(connection)
        sys.stdin.readline()
        print(gap * 1_000, flush=True)


if __name__ == "__main__":
    main()
