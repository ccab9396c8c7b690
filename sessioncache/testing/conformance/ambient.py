"""The ambient session: binding, resuming by id alone."""

from __future__ import annotations

import asyncio
import threading

import pytest

from sessioncache import current_session
from sessioncache.errors import AmbiguousSessionError, NoSessionError, SessionNotFoundError
from sessioncache.testing.conformance.base import Cache, Conformance, raised


class TestBinding(Conformance):
    """s.bind and current_session."""

    async def test_the_bound_session_is_current_within_the_block(self, cache: Cache) -> None:
        made = await cache.create("ada", session_id="s1")
        with made.bind():
            found = current_session()
            assert (found.org, found.app, found.user, found.id) == (cache.org, cache.app, "ada", "s1")
            await found.set("a", 1)
        with pytest.raises(NoSessionError):
            current_session()
        assert await made.get("a") == 1

    async def test_the_previous_session_comes_back(self, cache: Cache) -> None:
        outer, inner = await cache.create("ada"), await cache.create("ada")
        with outer.bind():
            with inner.bind():
                assert current_session().id == inner.id
            assert current_session().id == outer.id
            with pytest.raises(RuntimeError), inner.bind():
                raise RuntimeError
            assert current_session().id == outer.id

    async def test_tasks_have_their_own_session(self, cache: Cache) -> None:
        sessions = [await cache.create("ada") for _ in range(5)]
        all_bound = asyncio.Barrier(5)

        async def run(session: Cache) -> bool:
            with session.bind():
                await all_bound.wait()
                return bool(current_session().id == session.id)

        assert await asyncio.gather(*map(run, sessions)) == [True] * 5
        with pytest.raises(NoSessionError):
            current_session()

    async def test_a_task_inherits_the_session_of_its_maker(self, cache: Cache) -> None:
        made = await cache.create("ada")

        async def see() -> str:
            return str(current_session().id)

        with made.bind():
            task = asyncio.create_task(see())
        assert await task == made.id

    async def test_a_new_thread_has_none(self, cache: Cache) -> None:
        made = await cache.create("ada")
        seen: list[BaseException] = []

        def see() -> None:
            try:
                current_session()
            except NoSessionError as error:
                seen.append(error)

        with made.bind():
            thread = threading.Thread(target=see)
            thread.start()
            thread.join()
        assert len(seen) == 1


class TestResume(Conformance):
    """cache.resume."""

    async def test_a_session_is_resumed_by_its_id_alone(self, cache: Cache) -> None:
        await cache.create("ada", session_id="s1", state={"a": 1, "user:u": 2})
        async with cache.resume("s1") as session:
            assert (session.user, session.id) == ("ada", "s1")
            assert dict(session.state) == {"a": 1, "user:u": 2}
            assert current_session().id == "s1"
            await session.set("b", 3)
        with pytest.raises(NoSessionError):
            current_session()
        assert await (await cache.get("ada", "s1")).get("b") == 3

    async def test_a_flushed_session_is_resumed_too(self, cache: Cache) -> None:
        await cache.create("ada", session_id="s1", state={"a": 1})
        await cache.flush()
        async with cache.resume("s1") as session:
            assert dict(session.state) == {"a": 1}

    async def test_a_missing_or_deleted_session_is_not_found(self, cache: Cache) -> None:
        await raised(SessionNotFoundError, _resume(cache, "s1"))
        await cache.create("ada", session_id="s1")
        await raised(SessionNotFoundError, _resume(cache, "s1", user="bob"))
        await cache.delete("ada", "s1")
        await raised(SessionNotFoundError, _resume(cache, "s1"))
        await raised(SessionNotFoundError, _resume(cache, "s1", user="ada"))

    async def test_an_id_of_several_users_needs_the_user(self, cache: Cache) -> None:
        await cache.create("ada", session_id="s1")
        await cache.create("bob", session_id="s1")
        error = await raised(AmbiguousSessionError, _resume(cache, "s1"))
        assert error.session_id == "s1"
        assert "ada" not in str(error) + repr(vars(error))
        assert await _resume(cache, "s1", user="bob") == "bob"
        await cache.delete("ada", "s1")
        assert await _resume(cache, "s1") == "bob"

    async def test_sessions_of_other_apps_and_tenants_are_not_resumed(self, cache: Cache) -> None:
        await cache.bound_to(app="other").create("ada", session_id="s1")
        await cache.bound_to(org=cache.org + "2").create("ada", session_id="s1")
        await raised(SessionNotFoundError, _resume(cache, "s1"))
        await cache.create("bob", session_id="s1")
        assert await _resume(cache, "s1") == "bob"

    async def test_an_error_in_the_block_passes_and_unbinds(self, cache: Cache) -> None:
        await cache.create("ada", session_id="s1")

        async def stumble() -> None:
            async with cache.resume("s1"):
                raise ZeroDivisionError

        await raised(ZeroDivisionError, stumble())
        with pytest.raises(NoSessionError):
            current_session()


async def _resume(cache: Cache, session_id: str, *, user: str | None = None) -> str:
    """The user whose session was resumed."""
    async with cache.resume(session_id, user=user) as session:
        return str(session.user)
