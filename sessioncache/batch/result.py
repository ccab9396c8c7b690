"""Results of batches: what a call of a batch returned, once the block of the batch has ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from sessioncache.errors import ConfigurationError

T = TypeVar("T")


class Pending(Generic[T]):
    """The result of a call of a batch, available once the block has ended."""

    __slots__ = ("_call", "_error", "_state", "_value")

    def __init__(self, call: Callable[[], Awaitable[T]]) -> None:
        self._call: Callable[[], Awaitable[T]] | None = call
        self._value: T | None = None
        self._error: Exception | None = None
        self._state = "is sent when its block ends: ask for results after the block"

    @property
    def error(self) -> Exception | None:
        """Why the call failed; None if it did not.

        Raises:
            ConfigurationError: The call was not made: the block has not ended, or ended with an error.
        """
        if self._state:
            raise ConfigurationError(f"this batch {self._state}")
        return self._error

    def result(self) -> T:
        """What the call returned; its error is raised if it failed.

        Raises:
            ConfigurationError: The call was not made: the block has not ended, or ended with an error.
        """
        if self.error is not None:
            raise self.error
        return self._value  # type: ignore[return-value]

    async def _run(self) -> None:
        call, self._call = self._call, None
        assert call is not None
        try:
            self._value = await call()
        except Exception as error:
            self._error = error
        self._state = ""

    def _give_up(self, why: str) -> None:
        self._call = None
        if self._state:
            self._state = why
