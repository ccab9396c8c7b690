"""What must hold where a tier comes back older, told step by step (R14, R17, R18): each guard of the rules breaks one.

The state machine of test_model.py meets these by chance; here each is told.  A story is a list of its rules; after each
step, and at rest, the tiers must say what the model says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.model.lab import Lab
from tests.model.machine import SessionCacheMachine

Step = tuple[str, dict[str, Any]]

WRITE: Step = ("update", {"pick": 0, "state": {"a": "number"}, "delete": set(), "hold": None, "lose": ""})
WRITE_B: Step = ("update", {"pick": 0, "state": {"b": "number"}, "delete": set(), "hold": None, "lose": ""})
DELETE: Step = ("delete_key", {"pick": 0, "key": "a", "hold": None, "lose": ""})
WRITE_SHARED: Step = ("update", {"pick": 0, "state": {"user:a": "number"}, "delete": set(), "hold": None, "lose": ""})
DELETE_SHARED: Step = ("delete_key", {"pick": 0, "key": "user:a", "hold": None, "lose": ""})
WRITE_SPACE: Step = (
    "change_namespace",
    {"pick": 0, "space": "n1", "kind": "update", "key": "a", "value": "number", "hold": None, "lose": ""},
)
DELETE_SPACE: Step = (
    "change_namespace",
    {"pick": 0, "space": "n1", "kind": "delete", "key": "a", "value": "number", "hold": None, "lose": ""},
)
CLEAR_SPACE: Step = (
    "change_namespace",
    {"pick": 0, "space": "n1", "kind": "clear", "key": "a", "value": "number", "hold": None, "lose": ""},
)
CLEAR: Step = ("clear_session", {"pick": 0, "hold": None, "lose": ""})
END: Step = ("delete_session", {"agent": 0, "name": "s1", "hold": None, "lose": ""})
READ: Step = ("get_session", {"agent": 0, "name": "s1", "hold": None, "lose": ""})
READ_SPACE: Step = ("read_namespace", {"pick": 0, "space": "n1", "hold": None, "lose": ""})
READ_HELD: Step = ("get_session", {"agent": 1, "name": "s1", "hold": 2, "lose": ""})
GO_ON: Step = ("go_on", {"agent": 1, "steps": 4, "which": 0})
FLUSH: Step = ("finish_round", {"worker": 0})
EVICT: Step = ("take_hashes", {"scopes": set(range(8))})
PURGE: Step = ("happen", {"event": "purge", "which": 0})
JANITOR: Step = ("happen", {"event": "janitor", "which": 0})
COPY: Step = ("save", {"tier": "Redis"})
BACKUP: Step = ("save", {"tier": "SQL"})
RESTART_OLDER: Step = ("forget", {"fault": "files", "pick": 0})
RESTART: Step = ("forget", {"fault": "nothing", "pick": 0})
RESTORE: Step = ("put_back", {"pick": 0, "told": False})
RESTORE_AND_SAY: Step = ("put_back", {"pick": 0, "told": True})
SAY: Step = ("say_so", {})
REFUSE: Step = ("database", {"tells": "refuses"})
TAKE: Step = ("database", {"tells": "takes"})
WRITE_POISON: Step = ("update", {"pick": 0, "state": {"b": "poison"}, "delete": set(), "hold": None, "lose": ""})

STORIES: dict[str, list[Step]] = {
    # SQL from a backup
    "what is hot is in SQL again": [BACKUP, FLUSH, RESTORE_AND_SAY, FLUSH, EVICT, READ],
    "a key that was deleted since": [FLUSH, BACKUP, DELETE, FLUSH, RESTORE_AND_SAY, FLUSH, EVICT, READ],
    "a key that was deleted since, in silence": [FLUSH, BACKUP, DELETE, FLUSH, RESTORE, WRITE_B, FLUSH, FLUSH, READ],
    "a shared key that was deleted since": [
        WRITE_SHARED, FLUSH, BACKUP, DELETE_SHARED, FLUSH, RESTORE_AND_SAY, FLUSH, EVICT, READ,
    ],
    "a key of a namespace that was deleted since": [
        WRITE_SPACE, FLUSH, BACKUP, DELETE_SPACE, FLUSH, RESTORE_AND_SAY, FLUSH, EVICT, READ_SPACE,
    ],
    "a namespace that was cleared since": [
        WRITE_SPACE, FLUSH, BACKUP, CLEAR_SPACE, FLUSH, RESTORE_AND_SAY, FLUSH, EVICT, READ_SPACE,
    ],
    "what was cleared since": [FLUSH, BACKUP, CLEAR, FLUSH, RESTORE_AND_SAY, FLUSH, EVICT, READ],
    "what was cleared since, in silence": [FLUSH, BACKUP, CLEAR, FLUSH, RESTORE, JANITOR, FLUSH, FLUSH, READ],
    "a session that was deleted since": [FLUSH, BACKUP, END, FLUSH, RESTORE_AND_SAY, FLUSH, EVICT, READ],
    "a session that was deleted since, in silence": [FLUSH, BACKUP, END, FLUSH, RESTORE, JANITOR, FLUSH, FLUSH, READ],
    "a flush notices that SQL is older": [FLUSH, BACKUP, WRITE, FLUSH, RESTORE, WRITE_B, FLUSH, FLUSH, FLUSH],
    "the janitor notices that SQL is older": [FLUSH, BACKUP, WRITE, FLUSH, RESTORE, JANITOR, FLUSH, FLUSH],
    "the command comes late": [FLUSH, BACKUP, WRITE, FLUSH, RESTORE, WRITE_B, SAY, FLUSH, EVICT, READ],
    "a loader that read before": [FLUSH, BACKUP, DELETE, FLUSH, EVICT, READ_HELD, RESTORE_AND_SAY, GO_ON, READ],
    "a loader that read the backup": [FLUSH, BACKUP, DELETE, FLUSH, RESTORE, READ_HELD, SAY, GO_ON, FLUSH, READ],
    "SQL is older than what was read from it": [FLUSH, BACKUP, DELETE, FLUSH, EVICT, READ, RESTORE, JANITOR, FLUSH],
    # both tiers
    "what is newer in an older Redis is marked": [
        FLUSH, BACKUP, WRITE, FLUSH, COPY, EVICT, RESTORE, READ, WRITE_B, FLUSH, RESTART_OLDER, READ,
    ],
    "a key that was deleted between the copy and the backup": [
        WRITE_B, COPY, DELETE, BACKUP, FLUSH, RESTORE, JANITOR, FLUSH, FLUSH, RESTART_OLDER, READ, FLUSH, READ,
    ],
    "SQL is older and Redis restarts": [FLUSH, BACKUP, DELETE, FLUSH, RESTORE, RESTART, READ, FLUSH, READ],
    "SQL is older and Redis restarts, after a reading from SQL": [
        WRITE_B, FLUSH, BACKUP, DELETE, FLUSH, EVICT, READ, RESTORE, RESTART, READ, FLUSH, READ,
    ],
    "SQL is older and Redis restarts, after a revalidation": [
        WRITE_B, FLUSH, BACKUP, COPY, DELETE, FLUSH, RESTART_OLDER, READ, RESTORE, RESTART, READ, FLUSH, READ,
    ],
    "SQL is older than what it purged": [
        WRITE_B, FLUSH, BACKUP, DELETE, FLUSH, PURGE, EVICT, READ, RESTORE, RESTART, READ, FLUSH, READ,
    ],
    "what only Redis has after a restart is marked": [BACKUP, FLUSH, RESTORE, RESTART, READ, FLUSH, FLUSH, READ],
    "an older Redis, and the command": [FLUSH, COPY, WRITE, FLUSH, RESTART_OLDER, SAY, READ, FLUSH, EVICT, READ],
    "an older Redis, a deletion, and the command": [FLUSH, COPY, DELETE, FLUSH, RESTART_OLDER, SAY, READ, FLUSH, READ],
    # Redis older than the retention
    "a purged key": [FLUSH, COPY, DELETE, FLUSH, PURGE, RESTART_OLDER, READ, FLUSH, EVICT, READ],
    "a purged key that was dirty in the copy": [COPY, FLUSH, DELETE, FLUSH, PURGE, RESTART_OLDER, READ, FLUSH, READ],
    "a purged session": [FLUSH, COPY, END, FLUSH, PURGE, RESTART_OLDER, READ, FLUSH, EVICT, READ],
    "a purged session that was dirty in the copy": [COPY, FLUSH, END, FLUSH, PURGE, RESTART_OLDER, READ, FLUSH, READ],
    "a purged key of a namespace": [
        WRITE_SPACE, FLUSH, COPY, DELETE_SPACE, FLUSH, PURGE, RESTART_OLDER, READ_SPACE, FLUSH, EVICT, READ_SPACE,
    ],
    "a purged shared key": [
        WRITE_SHARED, FLUSH, COPY, DELETE_SHARED, FLUSH, PURGE, RESTART_OLDER, READ, FLUSH, EVICT, READ,
    ],
    "a value that was refused, beside a purge": [
        WRITE_SHARED, FLUSH, REFUSE, WRITE_POISON, DELETE_SHARED, FLUSH, PURGE, RESTART, READ, TAKE, FLUSH, READ,
    ],
    "a living key beside a purged one": [
        WRITE_B, FLUSH, DELETE, COPY, FLUSH, PURGE, RESTART, READ, RESTART_OLDER, READ, FLUSH, EVICT, READ,
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Both servers."""
    made = Lab()
    yield made
    made.close()


@pytest.mark.parametrize("story", STORIES)
def test_what_comes_back_older_takes_nothing_and_brings_nothing_back(story: str, lab: Lab) -> None:
    SessionCacheMachine.lab = lab
    machine: Any = SessionCacheMachine()
    try:
        machine._create(0, "s1", {"a": "number"}, None, "")
        for number, (rule, arguments) in enumerate(STORIES[story], 1):
            try:
                getattr(machine, rule)(**arguments)
                machine.tiers_say_what_the_model_says()
            except AssertionError as error:
                error.add_note(f"step {number} of {story!r}: {rule}")
                raise
        machine._come_to_rest()
    finally:
        lab.run(machine._end())
