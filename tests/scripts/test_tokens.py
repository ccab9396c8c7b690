"""R12, R13: one loader a scope, and nothing is installed that may be outdated."""

from __future__ import annotations

import pytest

from sessioncache.hot.layout import Place
from sessioncache.hot.messages import Part
from sessioncache.hot.signals import TokenLost
from sessioncache.hot.tokens import TOKEN_LIFETIME_MS
from sessioncache.primitives.entries import Entry
from sessioncache.primitives.revisions import encode_revision
from tests.scripts.bench import START, Bench, put

LIFETIME = TOKEN_LIFETIME_MS / 1000
OLD = [Entry("k", START - 1, b'"old"')]


def slot(bench: Bench, place: Place) -> bytes | None:
    """What the token slot of a scope holds."""
    held: bytes | None = bench.ask("HGET", place.control, f"t:{place.ref.member}")
    return held


async def test_a_second_loader_waits_for_the_first(bench: Bench) -> None:
    await bench.take_token(bench.user())
    bench.clock.move(LIFETIME - 2)
    assert await bench.hot.take_token(bench.user()) == 2


async def test_another_loader_takes_over_when_the_token_has_expired(bench: Bench) -> None:
    place = bench.user()
    first = await bench.take_token(place)
    bench.clock.move(LIFETIME)
    second = await bench.take_token(place)
    with pytest.raises(TokenLost):
        await bench.install(place, OLD, token=first)
    await bench.install(place, token=second)
    assert await bench.values(place) == {}


async def test_a_loader_that_holds_on_to_its_token_is_not_overtaken(bench: Bench) -> None:
    place = bench.user()
    token = await bench.take_token(place)
    for _ in range(5):
        bench.clock.move(LIFETIME / 2)
        assert await bench.hot.kept(place, token).renew()
    assert await bench.hot.take_token(place) == LIFETIME
    await bench.install(place, OLD, known=START, token=token)


async def test_a_token_that_was_lost_is_not_kept(bench: Bench) -> None:
    place = bench.user()
    lost = await bench.take_token(place)
    bench.clock.move(LIFETIME)
    other = await bench.take_token(place)
    assert not await bench.hot.kept(place, lost).renew()
    await bench.install(place, OLD, known=START, token=other)
    assert not await bench.hot.kept(place, other).renew()
    assert slot(bench, place) is None


async def test_the_token_of_a_loader_that_was_killed_does_not_stay_for_ever(bench: Bench) -> None:
    place = bench.user()
    await bench.take_token(place)
    bench.clock.move(3_600)
    assert await bench.backlog.forget_silent([place.ref.bucket]) == 0
    bench.clock.move(LIFETIME + 1)
    assert await bench.backlog.forget_silent([place.ref.bucket]) == 1
    assert slot(bench, place) is None


async def test_a_token_of_an_older_incarnation_is_forgotten_at_once(bench: Bench) -> None:
    place = bench.user()
    await bench.take_token(place)
    bench.fail_over()
    await bench.register()
    assert await bench.backlog.forget_silent([place.ref.bucket]) == 1
    assert slot(bench, place) is None


async def test_what_was_staged_stays_as_long_as_the_token(bench: Bench) -> None:
    place = bench.user()
    token = await bench.take_token(place)
    await bench.hot.stage(place, token, [b"=k", encode_revision(START) + b"1"])
    for _ in range(5):
        bench.clock.move(LIFETIME / 2)
        await bench.hot.kept(place, token).renew()
    await bench.hot.install(place, token, [b"r", encode_revision(START), b"n", b"1", b"z", b"1"], staged=1)
    assert await bench.values(place) == {"k": b"1"}


async def test_a_token_dated_absurdly_far_ahead_is_taken_over(bench: Bench) -> None:
    first = await bench.take_token(bench.user())
    bench.clock.move(-3600)
    assert await bench.take_token(bench.user()) != first


async def test_there_is_no_token_for_a_scope_that_is_hot(bench: Bench) -> None:
    await bench.install(bench.user())
    assert await bench.hot.take_token(bench.user()) is None


async def test_an_install_consumes_the_token(bench: Bench) -> None:
    place = bench.user()
    token = await bench.take_token(place)
    await bench.install(place, token=token)
    assert slot(bench, place) is None
    bench.ask("DEL", place.hash)
    with pytest.raises(TokenLost):
        await bench.install(place, OLD, token=token)


async def test_a_create_consumes_the_token(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place, token=await bench.take_token(place))
    assert slot(bench, place) is None


async def test_a_create_under_another_token_is_refused(bench: Bench) -> None:
    await bench.take_token(bench.session())
    with pytest.raises(TokenLost):
        await bench.create(bench.session(), token=b"another")


async def test_a_generated_id_needs_no_token(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place, token=b"*")
    assert slot(bench, place) is None
    assert bench.field(place, "b") == bench.field(place, "r")


async def test_a_create_takes_the_token_away_from_a_loader_in_flight(bench: Bench) -> None:
    place = bench.session()
    token = await bench.take_token(place)
    await bench.create(place, token=b"*")
    await bench.flush(place)
    bench.ask("DEL", place.hash)
    with pytest.raises(TokenLost):
        await bench.hot.confirm_absent(place, token)


async def test_what_was_read_before_a_write_that_was_flushed_and_evicted_is_never_installed(bench: Bench) -> None:
    place = bench.user()
    stalled = await bench.take_token(place)
    bench.clock.move(LIFETIME)
    await bench.install(place, OLD, known=START)
    await bench.write(place, put("k", '"new"'))
    await bench.flush(place)
    bench.ask("DEL", place.hash)
    with pytest.raises(TokenLost):
        await bench.install(place, OLD, token=stalled)


@pytest.mark.parametrize("change", ["write", "delete"])
async def test_a_write_or_a_delete_destroys_the_token(bench: Bench, change: str) -> None:
    place = bench.session()
    birth = (await bench.create(place)).revision
    # As left by a loader that took its token just before another one installed the scope.
    bench.ask("HSET", place.control, f"t:{place.ref.member}", f"inc|token|{bench.clock.micros}")
    if change == "write":
        await bench.write(place, put("k", "1"), birth=birth)
    else:
        await bench.delete(place, birth)
    assert slot(bench, place) is None


async def test_nothing_is_installed_over_a_hash(bench: Bench) -> None:
    place = bench.user()
    await bench.install(place)
    await bench.write(place, put("k", "1"))
    incarnation = bench.field(place, "i").decode()
    bench.ask("HSET", place.control, f"t:{place.ref.member}", f"{incarnation}|mine|{bench.clock.micros}")
    with pytest.raises(TokenLost):
        await bench.install(place, OLD, token=b"mine")
    assert await bench.values(place) == {"k": b"1"}


async def test_a_new_incarnation_destroys_the_token(bench: Bench) -> None:
    place = bench.user()
    token = await bench.take_token(place)
    bench.fail_over()
    await bench.register()
    with pytest.raises(TokenLost):
        await bench.install(place, OLD, token=token)
    await bench.take_token(place)


async def test_absence_is_confirmed_under_the_token_only(bench: Bench) -> None:
    place = bench.session()
    token = await bench.take_token(place)
    with pytest.raises(TokenLost):
        await bench.hot.confirm_absent(place, b"another")
    await bench.hot.confirm_absent(place, token)
    with pytest.raises(TokenLost):
        await bench.hot.confirm_absent(place, token)


async def test_a_loader_that_stages_renews_its_token(bench: Bench) -> None:
    place = bench.user()
    token = await bench.take_token(place)
    bench.clock.move(LIFETIME - 1)
    await bench.hot.stage(place, token, [b"=k", encode_revision(START) + b"1"])
    bench.clock.move(LIFETIME - 1)
    assert await bench.hot.take_token(place) == 1


async def test_a_staged_scope_is_not_there_before_it_is_installed_whole(bench: Bench) -> None:
    place = bench.user()
    token = await bench.take_token(place)
    await bench.hot.stage(place, token, [b"=k", encode_revision(START) + b"1", b"n", b"2", b"z", b"2"])
    assert bench.ask("EXISTS", place.hash) == 0
    rest = [b"=l", encode_revision(START) + b"2", b"r", encode_revision(START)]
    await bench.hot.install(place, token, rest, staged=3)
    assert await bench.values(place) == {"k": b"1", "l": b"2"}
    assert bench.ask("KEYS", "*:p:*") == []


async def test_a_scope_of_which_a_staged_chunk_was_evicted_is_not_installed(bench: Bench) -> None:
    place = bench.user()
    token = await bench.take_token(place)
    await bench.hot.stage(place, token, [b"=k", encode_revision(START) + b"1"])
    bench.ask("DEL", bench.key(place, f"p:{place.ref.member}:{token.decode()}"))
    await bench.hot.stage(place, token, [b"=l", encode_revision(START) + b"2"])
    with pytest.raises(TokenLost):
        await bench.hot.install(place, token, [b"n", b"2", b"z", b"2"], staged=2)
    assert (bench.ask("EXISTS", place.hash), bench.ask("KEYS", "*:p:*")) == (0, [])


async def test_staging_under_a_lost_token_stores_nothing(bench: Bench) -> None:
    with pytest.raises(TokenLost):
        await bench.hot.stage(bench.user(), b"another", [b"=k", b"1"])
    assert bench.ask("KEYS", "*:p:*") == []


async def test_what_a_dead_loader_staged_goes_with_its_token(bench: Bench) -> None:
    place = bench.user()
    await bench.hot.stage(place, await bench.take_token(place), [b"=k", encode_revision(START) + b"1"])
    bench.clock.move(LIFETIME + 0.001)
    assert bench.ask("KEYS", "*:p:*") == []


async def test_a_shared_scope_that_a_create_needs_is_hydrated_first(bench: Bench) -> None:
    await bench.install(bench.user())
    await bench.create(bench.session(), others=[Part(bench.user(), [put("k", "1")])])
    assert await bench.values(bench.user()) == {"k": b"1"}
