"""The options that all commands share; ``--help`` needs none of the tiers."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from sessioncache.cli.printing import note, plain

EXIT_CODES = """\
exit codes:
  0    done
  1    a negative result (not verified, not found, several found, not flushed in time, schema not up to date)
  2    wrong usage or configuration
  3    Redis or the database is out of reach
  130  ended by Ctrl-C
  141  nobody reads the output any more
"""
LONGEST = 86_400
"""Most seconds that a command waits."""


class WrongUsage(SystemExit):
    """The command line cannot be understood; the problem has been reported on standard error."""

    def __init__(self, problem: str) -> None:
        super().__init__(2)
        self.problem = problem


class Parser(argparse.ArgumentParser):
    """A parser whose errors can be reported to programs as well."""

    def error(self, message: str) -> NoReturn:
        """Print usage and problem on standard error, and raise WrongUsage."""
        if message.endswith("arguments are required: ID"):
            message += " (one that begins with - comes last, behind --)"
        self.print_usage(sys.stderr)
        note(f"{self.prog}: error: {plain(message)}")
        raise WrongUsage(message)


def add_command(commands: Any, name: str, told: str, *examples: str, ends: str = EXIT_CODES) -> argparse.ArgumentParser:
    """A command that works on the tiers.

    `examples`: command lines without the program's name.  `ends`: what its exit codes mean.
    """
    shown = "".join(f"  sessioncache {example}\n" for example in examples)
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=told,
        description=told[:1].upper() + told[1:] + ".",
        epilog=(f"examples:\n{shown}\n" if shown else "") + ends,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    tier_options(parser)
    return parser


def add_group(commands: Any, name: str, told: str) -> Any:
    """A command that has commands of its own; what they are added to."""
    parent = commands.add_parser(
        name,
        help=told,
        description=told[:1].upper() + told[1:] + ".",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parent.add_subparsers(dest="action", metavar="ACTION", required=True)


def tier_options(parser: argparse.ArgumentParser) -> None:
    """Where the tiers are."""
    env = os.environ.get
    parser.add_argument(
        "--redis",
        metavar="URL",
        type=place,
        default=env("SESSIONCACHE_REDIS_URL"),
        help="Redis or Valkey [SESSIONCACHE_REDIS_URL]",
    )
    parser.add_argument(
        "--database",
        metavar="URL",
        type=place,
        default=env("SESSIONCACHE_DATABASE_URL"),
        help="SQL database [SESSIONCACHE_DATABASE_URL]",
    )
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        type=place,
        default=env("SESSIONCACHE_DATA_DIR", ".sessioncache"),
        help="without URLs: the folder of the embedded default [SESSIONCACHE_DATA_DIR, ./.sessioncache]",
    )
    parser.add_argument(
        "--prefix",
        type=prefix_name,
        default="sessioncache",
        help="what the Redis keys of the installation start with (sessioncache)",
    )
    parser.add_argument("--buckets", metavar="N", type=whole(1), default=256, help="the number of its partitions (256)")


def installation_of(options: argparse.Namespace) -> dict[str, Any]:
    """The settings that caches, workers and commands of one installation have in common."""
    return {"prefix": options.prefix, "buckets": options.buckets}


def place(text: str) -> str:
    """An argument type: a URL or folder, which a variable may say as well (argparse checks what it says, too)."""
    if not text:
        raise argparse.ArgumentTypeError("is empty, here or in its variable: name a place, or unset it")
    return text


def prefix_name(text: str) -> str:
    """An argument type: what Redis keys may start with."""
    if not text or set(text) & set("{}\0"):
        raise argparse.ArgumentTypeError("must not be empty and have no braces")
    return text


def json_option(parser: argparse.ArgumentParser) -> None:
    """For programs."""
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")


def span(least: float) -> Callable[[str], float]:
    """An argument type: seconds, from `least` to LONGEST."""

    def parse(text: str) -> float:
        seconds = float(text)
        if not least <= seconds <= LONGEST:
            raise argparse.ArgumentTypeError(f"must be seconds from {least:g} to {LONGEST}")
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


def wait_option(parser: argparse.ArgumentParser) -> None:
    """For commands that write."""
    parser.add_argument(
        "--wait", metavar="S", type=span(0), help="wait up to S seconds until SQL has it; exit 1 if it has not"
    )
