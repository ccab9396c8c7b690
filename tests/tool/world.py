"""A session that a model works in, all that lies around it, and all that a model might try to reach it with."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sessioncache import Session, SessionCache
from tests.helpers import Urls, drain, fetch, raw, scope_key, session
from tests.keys import read_dump

SPACE = "notes"
"""The namespace of what is around; attempts come close to it."""

HOSTILE_NAMES = [
    "user:x",
    "app:x",
    "temp:x",
    "user:",
    "temp:",
    "../s2",
    "../../user:x",
    "*",
    "?",
    "[a-z]*",
    "%",
    "_",
    "|",
    ":",
    "=x",
    "!",
    "x\ny",
    "notes:x",
    "notes*",
    "notes ",
    " notes",
    "NOTES",
    "notes\u200b",
    "n\u043etes",
    "s2",
    "ada",
    "'; DROP TABLE sessioncache_state; --",
    "sessioncache:{1}:h:s",
]
"""Names that are ordinary ones, whatever they look like."""

REFUSED_NAMES = ["", "a\0b", "notes\0", "\ud800", "x" * 257, "é" * 129]
"""Names that there are not."""

FOREIGN_ARGUMENTS = ["session_id", "session", "user", "user_id", "app", "org", "scope", "prefix", "Namespace", "", "*"]
"""Arguments that a model might hope for."""


async def make_surroundings(cache: SessionCache, urls: Urls) -> Session:
    """The model's session, without anything; beside it all kinds of things that are not its, all flushed."""
    mine = await cache.create("ada", session_id="s1", state={"x": "plain", "user:x": "shared", "app:x": "shared"})
    for user, session_id in (("ada", "s2"), ("bob", "s1"), ("", "../s2"), ("*", "*")):
        other = await cache.create(user, session_id=session_id, state={"x": "plain", "user:x": "other"})
        for name in (SPACE, "x", "user:x", "*"):
            await other.namespace(name).set("x", "other")
    await mine.namespace(SPACE).update({"x": "kept", "y": "kept"})
    await drain(urls)
    await mine.set("temp:x", "temporary")
    return mine


def snapshot(urls: Urls, theirs: Collection[str]) -> dict[str, Any]:
    """Everything in both tiers but the namespaces `theirs` of the model's session, and what a write to them moves."""
    return {"rows": _rows(urls, set(theirs)), "hashes": _hashes(urls, set(theirs))}


def _rows(urls: Urls, theirs: set[str]) -> dict[str, list[tuple[Any, ...]]]:
    mine = session("ada", "s1").id
    state = fetch(
        urls.database,
        "SELECT scope_id, namespace, key, value, revision, deleted FROM sessioncache_state ORDER BY scope_id, key_id",
    )
    found = {"state": [row for row in state if not (row[0] == mine and row[1] in theirs)]}
    for table in ("user_scope", "app_scope"):
        query = f"SELECT scope_id, revision, birth, cleared, deleted FROM sessioncache_{table} ORDER BY scope_id"
        found[table] = fetch(urls.database, query)
    heads = fetch(
        urls.database,
        "SELECT scope_id, birth, cleared, deleted, title, values_revision, message_count, token_total, forked_from,"
        " revision, updated FROM sessioncache_session ORDER BY scope_id",
    )
    found["session"] = [row[:-2] if row[0] == mine else row for row in heads]
    return found


def _hashes(urls: Urls, theirs: set[str]) -> dict[str, Any]:
    mine = scope_key(session("ada", "s1"))
    with raw(urls.redis) as client:
        dump = {key: held.content for key, held in read_dump(client).items() if ":h:" in key or ":temp:" in key}
    names = {name.encode() for name in theirs}
    own = mine.rpartition(":s")[2].encode()
    found = {key: held for key, held in dump.items() if not (held.get(b"d") == own and held.get(b"g") in names)}
    found[mine] = {name: value for name, value in dump[mine].items() if name not in (b"r", b"h", b"u", b"f", b"l")}
    return found
