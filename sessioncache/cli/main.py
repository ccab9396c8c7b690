"""Parses the command line, runs the command, and turns errors into exit codes."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Any

from sessioncache.cli.options import EXIT_CODES, Parser, WrongUsage, add_group, json_option, span, whole
from sessioncache.cli.options import add_command as _add
from sessioncache.cli.printing import print_json
from sessioncache.cli.session_options import add_sessions

_CLOSED_PIPE = 141
"""The exit code of programs that a closed pipe ends."""

DOCTOR = """\
each line says how one thing stands, what was found, and what to do:
  good     nothing is to be done
  warning  it works, and something may be lost or become bad
  bad      it does not work, or data is in danger now

The embedded default is examined only where it runs: nothing is started.

exit codes:
  0  nothing is bad
  1  something is bad
  2  wrong usage or configuration
  3  Redis or the database is out of reach; the other one was examined
"""


def build_parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    parser = Parser(
        prog="sessioncache",
        description="Session state for fleets of AI agents, hot in Redis, durable in SQL.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version, and exit")
    parser.add_argument("--verbose", action="store_true", help="log more than errors")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    _add_replays(commands)
    _add_database(commands)
    _add_letters(commands)
    add_sessions(commands)
    flush = _add(commands, "flush", "wait until nothing is dirty", "flush --timeout 10")
    flush.add_argument("--timeout", metavar="S", type=span(0), default=60.0, help="seconds to wait (60)")
    json_option(flush)
    _add_top(commands)
    _add_doctor(commands)
    _add_mcp(commands)
    return parser


def _add_replays(commands: Any) -> None:
    demo = _add(
        commands,
        "demo",
        "replay the built-in sample on the embedded default, with worker kills, and verify",
        "demo --data-dir /tmp/demo",
    )
    replay = _add(
        commands,
        "replay",
        "replay recorded agent sessions in many processes, and verify that both tiers agree",
        "replay sessions.jsonl.gz --processes 4 --worker-kills 5",
    )
    replay.add_argument("file", metavar="FILE", help="recorded sessions: JSON lines, plain or gzipped (.gz)")
    for parser, kills, repeat in ((demo, 2, 3), (replay, 0, 1)):
        parser.add_argument("--processes", metavar="N", type=whole(1), default=4, help="agent processes (4)")
        parser.add_argument(
            "--worker-kills",
            metavar="K",
            type=whole(0),
            default=kills,
            help=f"workers to kill with SIGKILL while they hold a claim ({kills})",
        )
        parser.add_argument(
            "--repeat", metavar="R", type=whole(1), default=repeat, help=f"passes over the file, at least ({repeat})"
        )
        json_option(parser)


def _add_database(commands: Any) -> None:
    actions = add_group(commands, "db", "the database schema")
    told = {
        "upgrade": "bring the schema up to date; several processes may do so at once",
        "current": "show the schema's revision",
        "check": "tell whether the schema is the one this version needs",
        "adopt": "let a new database take the place of the one that Redis was used with; marks everything hot as dirty",
        "restored": "after a restored backup: mark everything hot as dirty, so that it is flushed again",
    }
    for name, text in told.items():
        json_option(_add(actions, name, text, f"db {name} --database postgresql://host/name"))


def _add_letters(commands: Any) -> None:
    actions = add_group(commands, "dead", "dead letters: what the database refuses")
    told = {
        "list": "list all dead letters",
        "show": "show one dead letter (not its value)",
        "retry": "have dead letters flushed again now (by itself: after 10 minutes, then ever more rarely, once a day)",
        "drop": "give dead letters up: their keys go back to what the database has",
    }
    examples = {
        "list": ("dead list --json",),
        "show": ("dead show 3f2a90c1d4e5",),
        "retry": ("dead retry 3f2a90c1d4e5", "dead retry --all"),
        "drop": ("dead drop 3f2a90c1d4e5",),
    }
    for name, text in told.items():
        action = _add(actions, name, text, *examples[name])
        json_option(action)
        if name == "show":
            action.add_argument("letter", metavar="ID", help="id of the dead letter")
        elif name != "list":
            action.add_argument("letter", metavar="ID", nargs="?", help="id of the dead letter")
            action.add_argument("--all", action="store_true", help="all dead letters")


def _add_top(commands: Any) -> None:
    told = "watch what waits for the database, what is flushed, and who does it"
    parser = _add(commands, "top", told, "top --interval 5", "top --count 2 --json")
    parser.add_argument("--interval", metavar="S", type=span(0.1), default=2.0, help="seconds between readings (2)")
    parser.add_argument("--count", metavar="N", type=whole(1), help="end after N readings (never)")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")


def _add_doctor(commands: Any) -> None:
    told = "examine both tiers and the way between them; changes nothing"
    doctor = _add(commands, "doctor", told, "doctor", "doctor --json", ends=DOCTOR)
    json_option(doctor)


def _add_mcp(commands: Any) -> None:
    told = "serve the agent tool of one session to an MCP client, over standard input and output"
    mcp = _add(commands, "mcp", told, "mcp --app support --user ada --session conversation-1 --create")
    mcp.add_argument("--app", required=True, help="app of the session")
    mcp.add_argument("--org", default="", help="org of the session (none)")
    mcp.add_argument("--user", required=True, help="user of the session")
    mcp.add_argument("--session", required=True, metavar="ID", help="the session; the client cannot choose another one")
    mcp.add_argument("--create", action="store_true", help="create the session if it does not exist")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; its exit code."""
    _fill_closed_streams()
    try:
        code = _main(argv)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _discard_output()
        return _CLOSED_PIPE
    except OSError as error:
        _discard_output()
        print(f"sessioncache: cannot read or write: {error.strerror or type(error).__name__}", file=sys.stderr)
        return 2
    return code


def _fill_closed_streams() -> None:
    """A standard stream that is closed has nothing to read and keeps nothing; else what is opened next, the event
    loop's selector say, would have its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - open until the process ends


def _discard_output() -> None:
    """Python flushes standard output once more when it ends, and would complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _main(argv: Sequence[str] | None) -> int:
    parser = build_parser()
    options = _parse(parser, sys.argv[1:] if argv is None else argv)
    if options.version:
        from importlib.metadata import version

        print(f"sessioncache {version('sessioncache')}")
        return 0
    if options.command is None:
        parser.print_help(sys.stderr)
        return 2
    logging.basicConfig(
        level=logging.INFO if options.verbose else logging.ERROR, format="%(levelname)s %(name)s: %(message)s"
    )
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    return _run(options)


def _parse(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    try:
        return parser.parse_args(words)
    except WrongUsage as wrong:
        if "--json" in words:
            print_json({"error": wrong.problem, "kind": "ConfigurationError"})
        raise


def _run(options: argparse.Namespace) -> int:
    from sessioncache.cli import commands, dead_letters, doctor, mcp, sessions, top
    from sessioncache.cli.exit_codes import explain
    from sessioncache.errors import SessionCacheError

    run = {
        "demo": commands.demo,
        "replay": commands.replay,
        "db": commands.db,
        "dead": dead_letters.dead,
        "flush": commands.flush,
        "top": top.top,
        "doctor": doctor.doctor,
        "sessions": sessions.sessions,
        "mcp": mcp.serve,
    }
    try:
        return asyncio.run(run[options.command](options))
    except SessionCacheError as error:
        return explain(error, options)
