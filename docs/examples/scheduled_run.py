"""A scheduled run picks up a conversation that another process serves.

Two processes, started in any order and at any time; neither knows of the other::

    python docs/examples/scheduled_run.py serve ada conversation-1     # each line of input is a message of the user
    python docs/examples/scheduled_run.py run conversation-1           # from cron: it knows the conversation only

Without URLs in SESSIONCACHE_REDIS_URL and SESSIONCACHE_DATABASE_URL both use the data folder in ./.sessioncache.
Notes of the memory layer are in the file that NOTES_DATABASE names, ./notes.db by default.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
from contextlib import closing

from sessioncache import SessionCache, current_session

APP = "scheduled-run-example"


class Memory:
    """A memory layer as frameworks have them: what it keeps belongs to the user of the ambient session.

    It takes no session and no user, so that nobody can hand it the wrong one; outside of a session it raises
    NoSessionError, and remembers nothing.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def remember(self, note: str) -> None:
        """Keep a note for the user."""
        row = (*current_session().identity, note)
        with closing(self._open()) as database, database:
            database.execute("INSERT INTO notes VALUES (?, ?, ?, ?, ?)", row)

    def recall(self) -> list[str]:
        """What was noted in any session of the user, the oldest first."""
        org, app, user, _ = current_session().identity
        query = "SELECT note FROM notes WHERE org = ? AND app = ? AND user = ? ORDER BY rowid"
        with closing(self._open()) as database:
            return [note for (note,) in database.execute(query, (org, app, user))]

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path, timeout=10)
        database.execute(
            "CREATE TABLE IF NOT EXISTS notes (org TEXT, app TEXT, user TEXT, session TEXT, note TEXT NOT NULL)"
        )
        return database


async def answer(memory: Memory, who: str, message: str) -> dict[str, object]:
    """One turn of the agent, whoever runs it: it finds session and user by itself."""
    session = current_session()
    turn = await session.increment("turns")  # exact, also while the other process counts
    await session.update({f"last:{who}": message, f"temp:{who}": f"draft of turn {turn}"})
    await asyncio.to_thread(memory.remember, f"{who}: {message}")
    await session.refresh()
    return {"state": dict(session.state), "memory": await asyncio.to_thread(memory.recall)}


async def serve(cache: SessionCache, memory: Memory, user: str, session_id: str) -> None:
    """Answer the user's messages until the input ends."""
    session, _ = await cache.get_or_create(user, session_id)
    with session.bind():
        print(f"serving {session.id}", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(await answer(memory, "serving", line.strip())), flush=True)


async def run(cache: SessionCache, memory: Memory, session_id: str) -> None:
    """Do what is due in one conversation, then end."""
    async with cache.resume(session_id):
        print(json.dumps(await answer(memory, "scheduled", "good morning")), flush=True)


async def main(command: str, *arguments: str) -> None:
    """Run one of the two commands."""
    memory = Memory(os.environ.get("NOTES_DATABASE", "notes.db"))
    async with SessionCache.connect(app=APP) as cache:
        if command == "serve":
            await serve(cache, memory, *arguments)
        else:
            await run(cache, memory, *arguments)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
