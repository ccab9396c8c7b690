"""Batch size: how many rows one transaction gets.  Pure: no I/O."""

from __future__ import annotations

_LEAST = 50


class BatchSize:
    """The most rows of a batch: as many as the settings allow, fewer while the database takes long over them.

    A batch that takes long holds locks and claims for as long, and a statement that runs into its time-out is in vain.
    """

    def __init__(self, most: int, slow: float) -> None:
        """`most` rows, unless a batch takes more than `slow` seconds."""
        self.rows = most
        self._most = most
        self._slow = slow

    def took(self, rows: int, seconds: float) -> None:
        """A batch of so many rows was committed in so many seconds."""
        if seconds > self._slow:
            self.failed()
        # Only a batch that used what it was allowed shows that more would be quick, too.
        elif rows > self.rows // 2 and seconds < self._slow / 4:
            self.rows = min(self._most, 2 * self.rows)

    def failed(self) -> None:
        """A batch could not be committed: it may have been too large to be committed in time."""
        self.rows = max(min(_LEAST, self._most), self.rows // 2)
