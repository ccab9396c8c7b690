"""Caches as the tests of the client have them."""

from __future__ import annotations

from tests.client.conftest import cache, small_cache, small_urls, urls

__all__ = ["cache", "small_cache", "small_urls", "urls"]
