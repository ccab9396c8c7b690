"""Listings in SQL: their order, where they go on, what they leave out, and the indexes that serve them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import Select, text

from sessioncache.durable import listing
from sessioncache.durable.tier import DurableTier
from sessioncache.primitives.cursors import ORDERS, Order, Owner, Position, instant_of
from sessioncache.primitives.entries import StoredHead
from sessioncache.primitives.scopes import ScopeRef, bare_id, session_ref
from tests.durable_helpers import BUCKETS, dirt, open_tier, put, session

OWNERS = {
    "user": Owner("org", "app", "u"),
    "app": Owner("org", "app", None),
    "org_user": Owner("org", None, "u"),
    "org": Owner("org", None, None),
}
KINDS = list(OWNERS)


@pytest.fixture
async def tier(database_url: str) -> AsyncIterator[DurableTier]:
    async with open_tier(database_url) as made:
        yield made


def elsewhere(app: str, user: str = "u", name: str = "s", org: str = "org") -> ScopeRef:
    """A session of another app or org."""
    return session_ref(BUCKETS, org, app, user, name)


def names(heads: list[StoredHead]) -> list[str]:
    """The session ids."""
    return [one.head.session for one in heads]


@pytest.mark.parametrize("kind", KINDS)
async def test_listings_are_newest_first_with_ties_by_code_point(tier: DurableTier, kind: str) -> None:
    tied = ["b", "B", "a", "_", "é", "😀", "\uffff"]
    await put(tier, *(dirt(session(name), 5) for name in tied), dirt(session("newest"), 9), dirt(session("oldest"), 2))
    await put(tier, dirt(session("deleted"), 20, deleted=True))
    heads = await tier.list_sessions(OWNERS[kind], "updated")
    assert names(heads) == ["newest", *sorted(tied), "oldest"]
    assert names(await tier.list_sessions(OWNERS[kind], "updated", limit=3)) == ["newest", "B", "_"]


async def test_listings_by_creation_do_not_care_when_a_session_changed(tier: DurableTier) -> None:
    await put(tier, dirt(session("first"), 9, birth=1), dirt(session("second"), 5, birth=2))
    for owner in OWNERS.values():
        assert names(await tier.list_sessions(owner, "created")) == ["second", "first"]
        assert names(await tier.list_sessions(owner, "updated")) == ["first", "second"]


async def test_listings_keep_users_apps_and_orgs_apart(tier: DurableTier) -> None:
    others = [elsewhere("other"), elsewhere("other", "v"), elsewhere("app", org="else"), session("s", "v")]
    await put(tier, *(dirt(ref, 5) for ref in (session("s", "u"), session("s", ""), *others)))
    found = {
        kind: sorted((one.head.app, one.head.user) for one in await tier.list_sessions(owner, "updated"))
        for kind, owner in OWNERS.items()
    }
    of_app = [("app", ""), ("app", "u"), ("app", "v")]
    assert found["user"] == [("app", "u")]
    assert found["app"] == of_app
    assert found["org_user"] == [("app", "u"), ("other", "u")]
    assert found["org"] == [*of_app, ("other", "u"), ("other", "v")]
    assert await tier.list_sessions(Owner("org", "none", None), "updated") == []


async def test_one_session_id_is_found_in_an_app_or_in_all(tier: DurableTier) -> None:
    await put(tier, *(dirt(session("s", name), 5) for name in ("u", "v", "")), dirt(elsewhere("other"), 5))
    await put(tier, dirt(session("s", "gone"), 5, deleted=True), dirt(session("t"), 5))

    async def found(app: str | None) -> list[tuple[str, str]]:
        return [(one.head.app, one.head.user) for one in await tier.find_sessions(bare_id("org", "s"), app)]

    assert await found("app") == [("app", ""), ("app", "u"), ("app", "v")]
    assert await found(None) == [*await found("app"), ("other", "u")]
    assert await tier.find_sessions(bare_id("other", "s")) == []


@pytest.mark.parametrize("order", ORDERS)
async def test_going_on_from_any_session_gives_exactly_those_after_it(tier: DurableTier, order: Order) -> None:
    refs = [session(f"s{number % 4}", f"u{number}") for number in range(24)]
    await put(tier, *(dirt(ref, 10 + number // 6, birth=1 + number // 8) for number, ref in enumerate(refs)))
    whole = await tier.list_sessions(OWNERS["app"], order)
    assert len(whole) == 24
    for number, one in enumerate(whole):
        after = Position(instant_of(one.head, order), one.head.session, one.scope_id)
        assert await tier.list_sessions(OWNERS["app"], order, after) == whole[number + 1 :]
        assert await tier.list_sessions(OWNERS["app"], order, after, 2) == whole[number + 1 : number + 3]


async def test_revisions_of_sessions_are_told_also_of_deleted_ones(tier: DurableTier) -> None:
    await put(tier, dirt(session("a"), 5), dirt(session("b"), 7, deleted=True))
    ids = [session(name).id for name in ("a", "b", "none")]
    assert await tier.session_revisions(ids) == {ids[0]: 5, ids[1]: 7}


# ---- indexes

AFTER = Position(2_900, "s7", "0" * 32)
SERVED_BY = {
    ("user", "updated"): "user",
    ("user", "created"): "user_created",
    ("app", "updated"): "app",
    ("app", "created"): "app_created",
    ("org_user", "updated"): "org_user",
    ("org_user", "created"): "org_user_created",
    ("org", "updated"): "org",
    ("org", "created"): "org_created",
}


async def explain(tier: DurableTier, query: Select[Any]) -> str:
    """How the database goes about a query on many sessions."""
    refs = [
        session_ref(BUCKETS, "org", f"app{i % 7}" if i % 4 else "app", f"u{i % 50}" if i % 3 else "u", f"s{i}")
        for i in range(3_000)
    ]
    heads = [dirt(ref, 10 + i, birth=1 + i) for i, ref in enumerate(refs)]
    for at in range(0, len(heads), 300):  # a transaction that is idle for long is ended, on a busy machine too
        await put(tier, *heads[at : at + 300])
    async with tier.engine.connect() as connection:
        await connection.execute(text("ANALYZE"))
        compiled = query.compile(tier.engine.sync_engine, compile_kwargs={"literal_binds": True})
        how = "EXPLAIN QUERY PLAN" if tier.engine.dialect.name == "sqlite" else "EXPLAIN"
        rows = (await connection.exec_driver_sql(f"{how} {compiled}")).all()
    return "\n".join(str(row) for row in rows)


@pytest.mark.parametrize("after", [None, AFTER], ids=["first", "later"])
@pytest.mark.parametrize(("kind", "order"), SERVED_BY)
async def test_a_page_is_served_by_an_index(tier: DurableTier, kind: str, order: Order, after: Position | None) -> None:
    plan = await explain(tier, listing.sessions_query(OWNERS[kind], order, after, 20))
    index = f"sessioncache_session_by_{SERVED_BY[kind, order]}"
    condition = "birth" if order == "created" else "updated"
    if tier.engine.dialect.name == "sqlite":
        assert f"USING INDEX {index} " in plan
        assert "TEMP B-TREE FOR ORDER BY" not in plan
        assert after is None or f"{condition}<" in plan
    else:
        assert f"using {index} " in plan
        assert "Sort" not in plan.replace("Incremental Sort", "").replace("Sort Key", "")
        assert after is None or f"({condition} <=" in plan.split("Index Cond", 1)[1].split("Filter", 1)[0]


async def test_all_sessions_of_one_id_are_found_by_an_index(tier: DurableTier) -> None:
    plan = await explain(tier, listing.bare_query(bare_id("org", "s7"), None))
    assert "sessioncache_session_by_bare_id" in plan
