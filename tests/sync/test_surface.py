"""The whole session surface without async: lives, namespaces, leases, ambient sessions, erasure."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

import sessioncache
from sessioncache.errors import (
    AmbiguousSessionError,
    ConfigurationError,
    LeaseUnavailableError,
    NoSessionError,
    SessionNotFoundError,
    StaleLeaseError,
    StaleSessionError,
)
from sessioncache.sync import SessionCache, current_session
from tests.forking import in_child
from tests.waiting import stretched


def test_a_session_is_touched_renamed_forked_cleared_and_exported(cache: SessionCache) -> None:
    session = cache.create("ada", session_id="s1", state={"a": 1, "temp:t": 1})
    session.namespace("skill").set("k", [1])
    assert session.touch(messages=2, tokens=30, first_message="Hello there").title == "Hello there"
    assert cache.touch("ada", "s1", messages=1).message_count == 3
    assert session.rename("One").title == cache.get("ada", "s1").title == "One"
    assert cache.rename("ada", "s1", "Two").title == "Two"
    child, other = session.fork(new_id="s2"), cache.fork("ada", "s1", new_id="s3")
    assert (dict(child.state), child.forked_from, child.message_count) == ({"a": 1}, "s1", 0)
    assert other.namespace("skill").items() == [("k", [1])]
    assert session.clear() == 1
    assert (session.get("a"), child.get("a")) == (None, 1)
    assert child.export() == cache.export_session("ada", "s2")
    assert [one["id"] for one in cache.export_user("ada")["sessions"]] != []


def test_a_namespace_has_the_calls_of_a_handle(small_cache: SessionCache) -> None:
    skill = small_cache.create("ada", session_id="s1").namespace("skill")
    assert (skill.name, skill.session_id) == ("skill", "s1")
    skill.update({"b": 1, "user:a": [1]})
    assert (skill.increment("b"), skill.append("user:a", 2)) == (2, 2)
    with skill.edit() as draft:
        draft["c"] = draft.pop("b")
    assert skill.items() == [("c", 2), ("user:a", [1, 2])]
    assert in_child(lambda: [skill.get("c"), skill.clear()]) == [2, 2]
    assert skill.items() == []


def test_erasing_a_user_leaves_nothing_and_lets_nothing_new_in(small_cache: SessionCache) -> None:
    session = small_cache.create("ada", session_id="s1", state={"a": 1})
    assert small_cache.erase_user("ada").sessions == 1
    with pytest.raises(SessionNotFoundError):
        session.get("a")
    with pytest.raises(StaleSessionError):
        small_cache.create("ada")


def test_sessions_are_listed_page_by_page_iterated_and_found(cache: SessionCache) -> None:
    ids = [cache.create("ada", session_id=f"s{number:03}").id for number in range(120)]
    cache.bound_to(app="other").create("bob", session_id="s000")
    page = cache.list("ada", limit=100, order="created")
    rest = cache.list("ada", limit=100, order="created", cursor=page.cursor)
    assert [info.id for info in [*page.items, *rest.items]] == ids[::-1]
    assert rest.cursor is None
    assert [info.id for info in cache.iter_sessions(order="created")] == ids[::-1]
    assert len(list(cache.iter_sessions(all_apps=True))) == 121
    assert next(iter(cache.iter_sessions("ada"))).id == ids[-1]
    assert [info.user for info in cache.find("s000", all_apps=True)] == ["ada", "bob"]


# ---- ambient sessions


def test_the_ambient_session_is_the_synchronous_handle_and_each_threads_own(small_cache: SessionCache) -> None:
    one, two = small_cache.create("ada"), small_cache.create("bob")
    with one.bind() as bound:
        assert bound is current_session() is one
        with two.bind(), ThreadPoolExecutor(1) as pool:
            assert current_session() is two
            assert isinstance(pool.submit(current_session).exception(), NoSessionError)
        assert sessioncache.current_session().identity == ("", "app", "ada", one.id)
    with pytest.raises(NoSessionError):
        current_session()


def test_a_session_is_resumed_by_its_id_alone(cache: SessionCache) -> None:
    cache.create("ada", session_id="s1", state={"a": 1})
    with cache.resume("s1") as session:
        assert current_session() is session
        assert session.increment("a") == 2
    with pytest.raises(NoSessionError):
        current_session()
    with pytest.raises(KeyError, match="mine"), cache.resume("s1"):
        raise KeyError("mine")
    cache.create("bob", session_id="s1")
    with pytest.raises(AmbiguousSessionError), cache.resume("s1"):
        pass
    with cache.resume("s1", user="bob") as session:
        assert session.user == "bob"


# ---- leases


def test_one_runner_at_a_time_and_a_late_write_is_refused(cache: SessionCache) -> None:
    session = cache.create("ada", session_id="s1")
    with session.lease(ttl=5) as held:
        held.set("a", 1)
        with pytest.raises(LeaseUnavailableError), cache.get("ada", "s1").lease():
            pass
        session.set("b", 2)
    with pytest.raises(StaleLeaseError):
        held.set("a", 2)
    with session.lease() as held:
        assert held.get("a") == 1


def test_a_lease_is_renewed_while_its_holder_calls_nothing(small_cache: SessionCache) -> None:
    session = small_cache.create("ada")
    with session.lease(ttl=0.3) as held:
        assert not threading.Event().wait(0.9)
        held.set("a", 1)


def test_a_waiting_runner_gets_the_lease_when_the_other_ends(small_cache: SessionCache) -> None:
    session = small_cache.create("ada")

    def run() -> int:
        with session.lease(wait=20) as held:
            return held.set("second", True)

    with ThreadPoolExecutor(1) as pool:
        with session.lease() as held:
            second = pool.submit(run)
            held.set("first", True)
            assert not second.done()
        assert second.result(stretched(20)) > 0


def test_a_lease_stays_with_the_process_that_took_it(small_cache: SessionCache) -> None:
    session = small_cache.create("ada")

    def leave() -> object:
        with pytest.raises(LeaseUnavailableError), session.lease():
            pass
        try:
            held.set("a", 1)
        except ConfigurationError as error:
            return str(error)
        return None

    with session.lease() as held:
        assert in_child(leave) == "a run lease stays with the process that took it: take one here"
        held.set("a", 2)


def test_leaving_a_block_in_a_child_leaves_it_alone_in_the_parent(small_cache: SessionCache) -> None:
    session = small_cache.create("ada", state={"a": 1})
    for block in (session.lease(), session.edit()):
        entered = block.__enter__()
        expected = "this block was entered before this process was forked: nothing was written"
        assert in_child(partial(block.__exit__, None, None, None)) == ["ConfigurationError", expected]
        assert not in_child(partial(block.__exit__, SystemExit, SystemExit(), None))
        assert entered.get("a") == 1
        block.__exit__(None, None, None)
