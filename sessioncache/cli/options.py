"""The options that all commands share; ``--help`` needs none of the tiers."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable


def tier_options(parser: argparse.ArgumentParser) -> None:
    """Where the tiers are."""
    env = os.environ.get
    parser.add_argument(
        "--redis", metavar="URL", default=env("SESSIONCACHE_REDIS_URL"), help="Redis or Valkey [SESSIONCACHE_REDIS_URL]"
    )
    parser.add_argument(
        "--database",
        metavar="URL",
        default=env("SESSIONCACHE_DATABASE_URL"),
        help="SQL database [SESSIONCACHE_DATABASE_URL]",
    )
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        default=env("SESSIONCACHE_DATA_DIR", ".sessioncache"),
        help="without URLs: the folder of the embedded default [SESSIONCACHE_DATA_DIR, ./.sessioncache]",
    )


def json_option(parser: argparse.ArgumentParser) -> None:
    """For programs."""
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")


def span(least: float) -> Callable[[str], float]:
    """An argument type: seconds, from `least`, at most a day."""

    def parse(text: str) -> float:
        seconds = float(text)
        if not least <= seconds <= 86_400:
            raise argparse.ArgumentTypeError(f"must be from {least} to 86400")
        return seconds

    parse.__name__ = "number of seconds"
    return parse


def whole(least: int) -> Callable[[str], int]:
    """An argument type: a whole number from `least`."""

    def parse(text: str) -> int:
        number = int(text)
        if number < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}")
        return number

    parse.__name__ = "whole number"
    return parse
