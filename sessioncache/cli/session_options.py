"""The options of ``sessioncache sessions``."""

from __future__ import annotations

import argparse
from typing import Any

from sessioncache.cli.options import add_command, add_group, json_option, wait_option, whole


def add_sessions(commands: Any) -> None:
    """``sessions list | show | delete | fork | export``."""
    actions = add_group(commands, "sessions", "look at sessions, and delete, fork or export them")
    _add_list(actions)
    show = _add(actions, "show", "show one session: its times, counters, lease, keys and namespaces")
    show.add_argument("--shared", action="store_true", help="show the keys, too, that it shares with its user and app")
    wait_option(_add(actions, "delete", "delete a session, at once for every process"))
    fork = _add(actions, "fork", "make a new session with the private keys and namespaces of another one")
    fork.add_argument("--new-id", metavar="N", help="the id of the new session (a generated one)")
    wait_option(fork)
    export = _add(actions, "export", "write all that is private to a session as JSON; temp: keys are left out")
    export.add_argument("--output", metavar="FILE", default="-", help="the file to write, at once or not at all (-)")


def _add(actions: Any, name: str, told: str) -> argparse.ArgumentParser:
    examples = {
        "show": ("sessions show conversation-1 --user ada", "sessions show conversation-1 --shared --json"),
        "delete": ("sessions delete conversation-1 --user ada --wait 10",),
        "fork": ("sessions fork conversation-1 --new-id what-if",),
        "export": ("sessions export conversation-1 --output conversation-1.json",),
    }
    parser = add_command(actions, name, told, *examples[name])
    parser.add_argument("session", metavar="ID", help="the session's id (one that begins with - comes last, behind --)")
    _whose(parser)
    json_option(parser)
    return parser


def _whose(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--org", metavar="O", default="", help="the tenant (the empty name)")
    parser.add_argument("--app", metavar="A", help="of this app only (all apps of the org)")
    parser.add_argument("--user", metavar="U", help="of this user only")


def _add_list(actions: Any) -> None:
    parser = add_command(
        actions,
        "list",
        "list sessions, newest first, those too that SQL does not have yet",
        "sessions list --app support --user ada",
        "sessions list --all --order created --json",
    )
    _whose(parser)
    parser.add_argument("--all-apps", action="store_true", help="of all apps of the org, as without --app")
    parser.add_argument("--limit", metavar="N", type=whole(1), help="sessions of a page (50; with --all 500)")
    parser.add_argument("--cursor", metavar="C", help="go on behind the page that ended with this cursor")
    parser.add_argument("--order", choices=("updated", "created"), default="updated", help="what is newest (updated)")
    parser.add_argument("--all", action="store_true", help="all pages, one after the other")
    json_option(parser)
