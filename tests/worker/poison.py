"""Databases that refuse the key `poison`: as data, or with errors that look like an outage."""

from __future__ import annotations

from tests.helpers import execute

_TRIGGER = """
CREATE FUNCTION poisoned() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.key = 'poison' THEN
        {}
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER no_poison BEFORE INSERT OR UPDATE ON sessioncache_state FOR EACH ROW EXECUTE FUNCTION poisoned()
"""
OUTAGES = {
    "a serialization failure": "RAISE EXCEPTION 'again' USING ERRCODE = 'serialization_failure';",
    "a statement that takes too long": "PERFORM pg_sleep(60);",
}


def refuse_poison(database_url: str) -> None:
    """Refuse the key as data."""
    if database_url.startswith("sqlite"):
        execute(
            database_url,
            "CREATE TRIGGER no_poison BEFORE INSERT ON sessioncache_state WHEN NEW.key = 'poison' "
            "BEGIN SELECT RAISE(ABORT, 'poison'); END",
        )
    else:
        check = "ADD CONSTRAINT no_poison CHECK (key <> 'poison') NOT VALID"
        execute(database_url, f"ALTER TABLE sessioncache_state {check}")


def refuse_title(database_url: str) -> None:
    """Refuse the title `bad`, in the head of a session."""
    if database_url.startswith("sqlite"):
        for event in ("INSERT", "UPDATE"):
            when = f"BEFORE {event} ON sessioncache_session WHEN NEW.title = 'bad'"
            execute(database_url, f"CREATE TRIGGER bad_{event} {when} BEGIN SELECT RAISE(ABORT, 'bad'); END")
    else:
        execute(database_url, "ALTER TABLE sessioncache_session ADD CONSTRAINT bad CHECK (title <> 'bad') NOT VALID")


def refuse_namespace(database_url: str) -> None:
    """Refuse the namespace `bad`, in its record."""
    if database_url.startswith("sqlite"):
        when = "BEFORE INSERT ON sessioncache_namespace WHEN NEW.namespace = 'bad'"
        execute(database_url, f"CREATE TRIGGER bad_space {when} BEGIN SELECT RAISE(ABORT, 'bad'); END")
    else:
        execute(database_url, "ALTER TABLE sessioncache_namespace ADD CONSTRAINT bad_space CHECK (namespace <> 'bad')")


def accept_poison(database_url: str) -> None:
    """Refuse it no longer."""
    if database_url.startswith("sqlite"):
        execute(database_url, "DROP TRIGGER no_poison")
    else:
        execute(database_url, "ALTER TABLE sessioncache_state DROP CONSTRAINT no_poison")


def fail_at_poison(postgresql_url: str, how: str) -> None:
    """Fail at the key (one of `OUTAGES`), as if the database were out of order."""
    for statement in _TRIGGER.format(OUTAGES[how]).split("$$;\n"):
        execute(postgresql_url, statement + ("$$" if statement.lstrip().startswith("CREATE FUNCTION") else ""))
