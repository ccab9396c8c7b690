"""Whether a Redis is there for others: another client, in a process of its own, so that its user cannot hold it up."""

from __future__ import annotations

from tests.helpers import Process


class Pinging(Process):
    """The process (see pinger.py)."""

    def __init__(self, redis_url: str) -> None:
        super().__init__("tests.tool.pinger", redis_url)

    def begin(self) -> None:
        """Begin to measure; returns once it has begun."""
        self.say("")
        self.hear()

    def end(self) -> float:
        """Stop; the longest gap between two answers in milliseconds."""
        self.say("")
        return float(self.hear())
