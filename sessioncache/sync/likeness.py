"""Likeness: a synchronous method says what the asynchronous one says, so that neither can drift."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def like(asynchronous: object) -> Callable[[F], F]:
    """Give a function the docstring of its asynchronous model."""

    def give(function: F) -> F:
        function.__doc__ = without_async(asynchronous.__doc__)
        return function

    return give


def without_async(text: str | None) -> str | None:
    """A docstring as it reads where nothing is awaited."""
    return text and text.replace("async with", "with").replace("async for", "for").replace("await ", "")
