"""Judges the SQL database: version, driver, schema.  Pure: no I/O."""

from __future__ import annotations

from sessioncache.durable.schema import SCHEMA_REVISION
from sessioncache.health.finding import Finding, bad, good, version_of
from sessioncache.health.sql_facts import SqlFacts

_OLDEST = {"PostgreSQL": (14,), "SQLite": (3, 40)}
_UPGRADE = "run `sessioncache db upgrade`"


def judge_database(facts: SqlFacts) -> Finding:
    """Kind and version of the database, and whether it takes what is flushed."""
    found = f"{facts.kind} {facts.version} at {facts.where}"
    if version_of(facts.version) < (oldest := _OLDEST[facts.kind]):
        return bad("database", f"{found} is too old", f"use {facts.kind} {'.'.join(map(str, oldest))} or later")
    if facts.standby:
        return bad("database", f"{found} is a standby: it takes no writes", "use the primary's URL")
    if facts.read_only:
        advice = "nothing, if that is intended: workers go on when it ends; else see default_transaction_read_only"
        return bad("database", f"{found} is set read-only: nothing is flushed", advice)
    if facts.encoding != "UTF8":
        return bad("database", f"{found} has encoding {facts.encoding}", "use a database created with ENCODING 'UTF8'")
    return good("database", f"{found}, driver {facts.driver}")


def judge_rights(facts: SqlFacts) -> Finding:
    """Whether the role of the URL may do what agents and workers do."""
    if not facts.missing_rights:
        return good("rights", "all that agents and workers need")
    told = ", ".join(facts.missing_rights)
    return bad("rights", f"the role of the URL lacks: {told}", "grant them; workers try again by themselves")


def judge_schema(facts: SqlFacts) -> Finding:
    """Whether the schema is the one that this version needs."""
    found = facts.revision
    if found == SCHEMA_REVISION:
        return good("schema", f"{found}, up to date")
    if found is None and any(one.startswith(("USAGE on schema", "SELECT on")) for one in facts.missing_rights):
        return bad("schema", "the role of the URL may not read it", "grant it what it lacks")
    if found is None:
        return bad("schema", "the database has no sessioncache schema", _UPGRADE)
    if found > SCHEMA_REVISION:
        advice = "install the version of sessioncache that upgraded it, or a later one"
        return bad("schema", f"{found} is newer than {SCHEMA_REVISION}, which this version knows", advice)
    return bad("schema", f"{found} is behind {SCHEMA_REVISION}", _UPGRADE)
