"""What comes back older: each guard of its rules against a story of the model (R14, R17, R18)."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_RECONCILING = "sessioncache/hot/reconciling.py"


def _story(name: str) -> str:
    return f"model/test_restores.py::test_what_comes_back_older_takes_nothing_and_brings_nothing_back[{name}]"


MUTATIONS = (
    Mutation(
        "what SQL lacks is kept without a mark",
        "R17",
        _RECONCILING,
        """        if name not in self.looked.marks:
            self.made.marks.append(name)
        if not held.dead:""",
        "        if not held.dead:",
        (_story("what is newer in an older Redis is marked"),),
    ),
    Mutation(
        "a stamp clears nothing",
        "R18",
        _RECONCILING,
        "self.cleared = made.stamp if self.deleted else made.stamp - 1",
        "self.cleared = made.stamp if self.deleted else self.cleared",
        (_story("a key that was deleted since"),),
    ),
    Mutation(
        "what a loader knows of deletions is not noted",
        "R14",
        "sessioncache/coordination/hydration.py",
        "fields[Field.PURGED] = fields[Field.REVISION]",
        "fields[Field.PURGED] = encode_revision(0)",
        (
            _story("SQL is older than what was read from it"),
            _story("SQL is older and Redis restarts, after a reading from SQL"),
        ),
    ),
    Mutation(
        "a purged key lives in an older Redis",
        "R14",
        _RECONCILING,
        "return known and not self.own and not held.dead",
        "return False",
        (_story("a purged key"),),
    ),
    Mutation(
        "a purged session lives in an older Redis",
        "R14",
        _RECONCILING,
        "return gone and self.birth <= self.stored.purged",
        "return False",
        (_story("a purged session"),),
    ),
    Mutation(
        "what was never flushed counts as purged",
        "R14",
        _RECONCILING,
        "known = held.revision <= self.stored.purged and (not flushed or held.revision <= flushed)",
        "known = held.revision <= self.stored.purged",
        (_story("a value that was refused, beside a purge"),),
    ),
    Mutation(
        "what SQL lost counts as purged",
        "R14",
        _RECONCILING,
        "known = held.revision <= self.stored.purged and (not flushed or held.revision <= flushed)",
        "known = not flushed or held.revision <= flushed",
        (_story("what only Redis has after a restart is marked"),),
    ),
    Mutation(
        "what SQL has is always news",
        "R14",
        _RECONCILING,
        'if row[0] > self.looked.revision("p"):',
        "if True:",
        (_story("SQL is older and Redis restarts"),),
    ),
    Mutation(
        "the command adopts what is of an older incarnation",
        "R18",
        "sessioncache/coordination/revalidation.py",
        "if now and now.whole and taken.incarnation == now.id and seen.is_whole(now.whole):",
        "if now:",
        (_story("an older Redis, and the command"),),
    ),
    Mutation(
        "late dirt of a deleted session passes for an older database",
        "R18",
        "sessioncache/durable/flushing.py",
        "rows = _living_spaces(ours, heads) if is_doubtful else prepared_rows",
        "rows = prepared_rows",
        ("durable/test_restored.py::test_late_dirt_of_a_deleted_session_is_no_older_database",),
    ),
)
