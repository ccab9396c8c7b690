"""The schedule: when to visit which bucket.  Pure: no I/O, the time is passed in (seconds)."""

from __future__ import annotations


class Schedule:
    """Buckets with something to do; one that is not on it costs nothing until it is announced, or found by a poll."""

    def __init__(self) -> None:
        self._due: dict[int, float] = {}
        self._announced: dict[int, float] = {}

    def announce(self, bucket: int, now: float) -> None:
        """There may be work in a bucket now (or at that time, if nothing is due there earlier)."""
        self._due[bucket] = min(now, self._due.get(bucket, now))
        self._announced[bucket] = max(now, self._announced.get(bucket, now))

    def note(self, bucket: int, wait: float | None, now: float) -> None:
        """After a visit that began at `now`: the next scope is due in `wait` seconds; None: the bucket was empty.

        What was announced since then stays.
        """
        # An announcement during the visit may be of a scope that the visit came too early to see.
        announced = self._announced.pop(bucket, now)
        times = [announced] if announced > now else []
        times += [] if wait is None else [now + wait]
        if times:
            self._due[bucket] = min(times)
        else:
            self._due.pop(bucket, None)

    def due(self, now: float, most: int) -> list[int]:
        """Buckets to visit now, those longest due first."""
        return sorted((b for b, at in self._due.items() if at <= now), key=self._due.__getitem__)[:most]

    def seconds_to_next(self, now: float) -> float | None:
        """Seconds in which there is nothing to do; None: until something is announced."""
        return max(0.0, min(self._due.values()) - now) if self._due else None
