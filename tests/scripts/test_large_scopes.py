"""Scopes that Lua would hold Redis up with: plain commands read them, at the version that the script found."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from fakeredis.aioredis import AsyncFakeSocket

from sessioncache.hot.client import Reply, Request
from sessioncache.hot.messages import Content, Part, Wanted
from sessioncache.primitives.entries import Entry
from tests.scripts.bench import START, Bench, put

MANY = [Entry(f"k{n}", START - 1, b"1") for n in range(2_001)]
LARGE = [Entry("a", START - 1, b"1" * 300_000), Entry("b", START - 1, b"2")]


@pytest.fixture
def in_lua(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands that scripts execute."""
    seen: list[str] = []
    run = AsyncFakeSocket._run_command

    def record(self: AsyncFakeSocket, func: object, sig: object, args: list[bytes], from_script: bool) -> object:
        if from_script:
            seen.append(sig.name)  # type: ignore[attr-defined]
        return run(self, func, sig, args, from_script)  # type: ignore[arg-type]

    monkeypatch.setattr(AsyncFakeSocket, "_run_command", record)
    return seen


async def look(bench: Bench, wanted: Wanted, held: bytes = b"") -> Content | None:
    """A reading of one whole scope."""
    (content,) = await bench.hot.look(bench.hot.plan([wanted]), [held])
    return content


@pytest.mark.parametrize("entries", [MANY, LARGE])
async def test_the_body_of_a_large_scope_does_not_go_through_lua(
    bench: Bench, in_lua: list[str], entries: list[Entry]
) -> None:
    place = bench.user()
    await bench.install(place, entries, known=START)
    (content,) = await bench.hot.read([Wanted(place)])
    assert len(content.entries) == len(entries)
    before = await look(bench, Wanted(place))
    assert before is not None
    assert await look(bench, Wanted(place), before.version) is None, "it is as it was"
    await bench.write(place, put("new", "1"))
    after = await look(bench, Wanted(place), before.version)
    assert after is not None
    assert len(after.entries) == len(entries) + 1
    assert "hgetall" not in in_lua


async def test_many_keys_of_a_large_scope_do_not_go_through_lua(bench: Bench) -> None:
    place, keys = bench.user(), [f"k{n}" for n in range(17)]
    await bench.install(place, MANY, known=START)
    (content,) = await bench.hot.read([Wanted(place, [*keys, "absent"])])
    assert sorted(content.entries) == sorted(keys)
    assert content.version == (await bench.hot.read([Wanted(place, ["k0"])]))[0].version


async def test_temp_keys_are_read_so_too_and_only_of_their_life(bench: Bench, in_lua: list[str]) -> None:
    place = bench.session()
    await bench.create(place)
    temp = Part(place, [put(f"k{n}", "1") for n in range(2_001)], temp=True)
    await bench.write_parts([Part(place, birth=bench.field(place, "b")), temp])
    in_lua.clear()
    _, content = await bench.hot.read([Wanted(place, []), Wanted(place, temp=True)])
    assert len(content.entries) == 2_001
    assert "hgetall" not in in_lua
    bench.raw.hset(place.temp, "b", "another--")
    _, content = await bench.hot.read([Wanted(place), Wanted(place, temp=True)])
    assert content.entries == {}


async def test_a_body_of_another_version_is_read_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    place = bench.user()
    await bench.install(place, MANY, known=START)
    asked, ask = [], bench.link.ask

    async def overtaken(request: Request, *, is_large: bool = False) -> Sequence[Reply]:
        told, body = await ask(request, is_large=is_large)
        asked.append(is_large)
        if len(asked) == 1:
            body = {**body, b"r": b"older----"} if isinstance(body, dict) else [*body, b"r", b"older----"]
        return [told, body]

    monkeypatch.setattr(bench.link, "ask", overtaken)
    (content,) = await bench.hot.read([Wanted(place)])
    assert len(content.entries) == 2_001
    assert asked == [True, True]


async def test_a_peek_at_a_large_scope_does_not_renew_it(bench: Bench) -> None:
    place = bench.user()
    await bench.install(place, MANY, known=START)
    bench.raw.pexpire(place.hash, 1_000)
    content = await bench.hot.peek(place)
    assert content is not None
    assert len(content.entries) == 2_001
    assert bench.raw.pttl(place.hash) <= 1_000
