"""R10: what the database refuses is set apart: it stays dirty and pinned, and holds nothing else up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sessioncache.hot.layout import Place
from sessioncache.primitives.revisions import decode_revision
from tests.scripts.bench import BUCKETS, IDLE, START, Bench, drop, put


async def poisoned(bench: Bench) -> Place:
    """A user's scope of which key `bad` is a dead letter and the rest is durable."""
    place = bench.user()
    await bench.install(place)
    await bench.write(place, put("bad", "1"), put("good", "1"))
    assert (await bench.refuse(place, "bad")).left == 1
    return place


async def letters(bench: Bench) -> list[tuple[str, str, int, str]]:
    """Key, user, attempts and reason of all letters."""
    found = await bench.letters.read(range(BUCKETS))
    return [(letter.key, letter.user, letter.attempts, letter.reason) for letter in found]


def raw_letters(bench: Bench, place: Place) -> dict[bytes, bytes]:
    """What the hash of letters holds."""
    return dict(bench.ask("HGETALL", bench.key(place, "dead")))


async def test_a_refused_entry_is_dead_after_enough_attempts(bench: Bench) -> None:
    place = bench.user()
    await bench.install(place)
    await bench.write(place, put("bad", "1"))
    dirt = await bench.dirt(place)
    dead = [await bench.record_failure(dirt, "bad", attempts=3) for _ in range(3)]
    assert dead == [False, False, True]
    assert await letters(bench) == [("bad", "u", 3, "why")]


async def test_attempts_count_for_one_revision_only(bench: Bench) -> None:
    place = bench.user()
    await bench.install(place)
    await bench.write(place, put("bad", "1"))
    for _ in range(2):
        await bench.record_failure(await bench.dirt(place), "bad", attempts=3)
    await bench.write(place, put("bad", "2"))
    assert not await bench.record_failure(await bench.dirt(place), "bad", attempts=3)
    assert await letters(bench) == []


async def test_what_was_written_again_since_is_not_accused(bench: Bench) -> None:
    place = bench.user()
    await bench.install(place)
    await bench.write(place, put("bad", "1"))
    dirt = await bench.dirt(place)
    await bench.write(place, put("bad", "2"))
    assert not await bench.record_failure(dirt, "bad", attempts=1)
    assert raw_letters(bench, place) == {}


async def test_what_another_worker_flushed_meanwhile_is_not_accused(bench: Bench) -> None:
    place = bench.user()
    await bench.install(place)
    await bench.write(place, put("bad", "1"))
    dirt = await bench.dirt(place)
    await bench.flush(place)
    assert not await bench.record_failure(dirt, "bad")
    assert raw_letters(bench, place) == {}


async def test_a_letter_tells_what_was_refused_when_and_why_but_not_the_value(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place, put("bad", '"secret"'))
    bench.clock.move(5)
    dirt = await bench.dirt(place)
    await bench.record_failure(dirt, "bad", reason="Refused|SQLSTATE 23514")
    (letter,) = await bench.letters.read(range(BUCKETS))
    assert (letter.org, letter.app, letter.user, letter.session) == ("org", "app", "u", "s")
    assert (letter.revision, letter.refused_at) == (dirt.entries[0].revision, START + 5_000_000)
    assert (letter.reason, letter.size) == ("Refused|SQLSTATE 23514", len('"secret"'))
    assert b"secret" not in b"".join(raw_letters(bench, place).values())
    await bench.acknowledge(replace(dirt, entries=[], left_out=True))


async def test_a_dead_letter_rests_neither_claimed_nor_old_yet_dirty_and_pinned(bench: Bench) -> None:
    place = await poisoned(bench)
    bench.clock.move(100_000)
    assert await bench.claim(bucket=place.ref.bucket, everything=True) == []
    assert (bench.due(place), bench.since(place)) == (None, None)
    assert await bench.backlog.oldest(range(BUCKETS)) is None
    assert (bench.marks(place), bench.ttl(place.hash)) == ({b"=bad"}, None)


async def test_an_entry_that_dies_while_it_is_claimed_rests_at_once(bench: Bench) -> None:
    place = bench.user()
    await bench.install(place)
    await bench.write(place, put("bad", "1"))
    await bench.claim(bucket=place.ref.bucket, everything=True)
    await bench.record_failure(await bench.dirt(place), "bad")
    assert (bench.due(place), bench.since(place)) == (None, None)


async def test_the_others_of_a_scope_are_flushed_beside_its_letter(bench: Bench) -> None:
    place = await poisoned(bench)
    await bench.write(place, put("good", "2"))
    assert bench.due(place) is not None
    dirt = await bench.dirt(place)
    assert [(entry.key, entry.text) for entry in dirt.entries] == [("good", b"2")]
    assert dirt.phantoms == []
    assert (await bench.acknowledge(dirt)).left == 1
    assert (bench.marks(place), bench.due(place), bench.ttl(place.hash)) == ({b"=bad"}, None, None)


async def test_a_newer_write_revives_it_and_its_flush_removes_the_letter(bench: Bench) -> None:
    place = await poisoned(bench)
    await bench.write(place, put("bad", "2"))
    assert bench.since(place) == bench.clock.micros
    assert await letters(bench) == []
    dirt = await bench.dirt(place)
    assert [entry.text for entry in dirt.entries] == [b"2"]
    assert (await bench.acknowledge(dirt)).left == 0
    assert raw_letters(bench, place) == {}


async def test_a_suspect_that_is_accepted_after_all_leaves_no_letter(bench: Bench) -> None:
    place = bench.user()
    await bench.install(place)
    await bench.write(place, put("bad", "1"))
    dirt = await bench.dirt(place)
    await bench.record_failure(dirt, "bad", attempts=3)
    assert (await bench.acknowledge(dirt)).left == 0
    assert raw_letters(bench, place) == {}


async def test_a_pardoned_letter_is_flushed_again_now(bench: Bench) -> None:
    place = await poisoned(bench)
    bench.clock.move(50)
    assert await bench.letters.retry(place, b"=bad")
    assert bench.due(place) == bench.since(place) == bench.clock.micros
    assert [entry.key for entry in (await bench.dirt(place)).entries] == ["bad"]
    assert (await bench.flush(place)).left == 0


async def retrying(bench: Bench) -> list[bool]:
    """Of all letters, whether they are being retried."""
    return [letter.retrying for letter in await bench.letters.read(range(BUCKETS))]


async def test_a_letter_that_is_retried_stays_in_the_list_until_sql_has_its_entry(bench: Bench) -> None:
    place = await poisoned(bench)
    assert await retrying(bench) == [False]
    await bench.letters.retry(place, b"=bad")
    assert await retrying(bench) == [True]
    await bench.flush(place)
    assert raw_letters(bench, place) == {}


async def test_a_letter_that_is_refused_again_is_one_at_once(bench: Bench) -> None:
    place = bench.user()
    await bench.install(place)
    await bench.write(place, put("bad", "1"))
    for _ in range(3):
        await bench.record_failure(await bench.dirt(place), "bad", attempts=3)
    await bench.letters.retry(place, b"=bad")
    assert await bench.record_failure(await bench.dirt(place), "bad", attempts=3)
    assert (await letters(bench), await retrying(bench)) == ([("bad", "u", 4, "why")], [False])
    assert bench.due(place) is None


async def test_what_is_retried_is_not_retried_again_by_itself(bench: Bench) -> None:
    place = await poisoned(bench)
    await bench.letters.retry(place, b"=bad")
    bench.clock.move(100_000)
    assert await bench.letters.retry_due(range(BUCKETS), 10) == 0


async def test_what_is_retried_makes_its_scope_no_younger(bench: Bench) -> None:
    place = await poisoned(bench)
    await bench.letters.retry(place, b"=bad")
    since = bench.since(place)
    await bench.write(place, put("good", "2"))
    bench.clock.move(5)
    dirt = await bench.dirt(place)
    good = [one for one in dirt.entries if one.key == "good"]
    await bench.acknowledge(replace(dirt, entries=good, left_out=True))
    assert bench.since(place) == since


async def test_a_letter_of_which_nothing_can_be_flushed_goes_when_it_is_retried(bench: Bench) -> None:
    place = await poisoned(bench)
    bench.raw.srem(bench.key(place, f"d:{place.ref.member}"), "=bad")
    bench.raw.expire(place.hash, int(IDLE))
    assert await bench.letters.retry(place, b"=bad")
    assert raw_letters(bench, place) == {}


async def test_a_letter_is_tried_again_by_itself_ever_more_rarely_and_once_a_day(bench: Bench) -> None:
    place = await poisoned(bench)
    waited = []
    for _ in range(10):
        tens = 0
        while not await bench.letters.retry_due(range(BUCKETS), 10):
            bench.clock.move(600)
            tens += 1
        waited.append(tens)
        assert bench.due(place) == bench.since(place) == bench.clock.micros
        await bench.refuse(place, "bad")
    assert waited == [1, 1, 2, 4, 8, 16, 32, 64, 128, 144], "times ten minutes"


async def test_a_letter_that_is_dated_ahead_is_tried_again(bench: Bench) -> None:
    place = await poisoned(bench)
    bench.clock.move(-1_000_000)
    assert await bench.letters.retry_due(range(BUCKETS), 10) == 1
    assert bench.due(place) == bench.clock.micros


async def test_of_many_letters_the_longest_refused_are_tried_again_first(bench: Bench) -> None:
    first = await poisoned(bench)
    bench.clock.move(300)
    second = bench.session()
    await bench.create(second, put("bad", "1"))
    await bench.refuse(second, "bad")
    bench.clock.move(3_600)
    assert await bench.letters.retry_due(range(BUCKETS), 1) == 1
    assert (bench.due(first), bench.due(second)) == (bench.clock.micros, None)


async def test_a_letter_of_an_older_incarnation_is_tried_again_at_once(bench: Bench) -> None:
    place = await poisoned(bench)
    assert await bench.letters.retry_due(range(BUCKETS), 10) == 0
    bench.raw.hset(place.control, "incarnation", "new")
    assert await bench.letters.retry_due(range(BUCKETS), 10) == 1
    assert bench.due(place) == bench.clock.micros


async def test_a_pardon_of_what_is_no_letter_changes_nothing(bench: Bench) -> None:
    place = await poisoned(bench)
    assert not await bench.letters.retry(place, b"=good")
    assert bench.due(place) is None


async def test_deleting_the_session_removes_its_letters_only(bench: Bench) -> None:
    place, other = bench.session(), await poisoned(bench)
    await bench.create(place, put("bad", "1"))
    await bench.refuse(place, "bad")
    await bench.delete(place, b"")
    assert [key for key, *_ in await letters(bench)] == ["bad"]
    assert set(raw_letters(bench, other)) == {f"{other.ref.member}=bad".encode()}
    assert (await bench.flush(place)).left == 0


async def test_a_deleted_key_may_be_dead_as_well(bench: Bench) -> None:
    place = bench.user()
    await bench.install(place)
    await bench.write(place, put("bad", "1"))
    await bench.write(place, drop("bad"))
    await bench.refuse(place, "bad")
    assert bench.due(place) is None
    assert await bench.values(place) == {}


@pytest.mark.parametrize("attempts", [1, 3])
async def test_flushed_through_never_passes_a_letter_or_a_suspect(bench: Bench, attempts: int) -> None:
    place = bench.user()
    await bench.install(place)
    await bench.write(place, put("bad", "1"))
    dirt = await bench.dirt(place)
    await bench.record_failure(dirt, "bad", attempts=attempts)
    await bench.acknowledge(replace(dirt, entries=[], left_out=True))
    await bench.write(place, put("good", "1"))
    dirt = await bench.dirt(place)
    good = [one for one in dirt.entries if one.key == "good"]
    await bench.acknowledge(replace(dirt, entries=good, left_out=dirt.left_out or len(good) < len(dirt.entries)))
    assert bench.field(place, "f") == b""
    await bench.letters.retry(place, b"=bad")
    await bench.flush(place)
    assert decode_revision(bench.field(place, "f")) == dirt.head.revision


async def test_flushed_through_does_not_pass_what_was_refused_and_written_anew_since(bench: Bench) -> None:
    place = bench.user()
    await bench.install(place)
    await bench.write(place, put("bad", "1"), put("good", "1"))
    dirt = await bench.dirt(place)
    await bench.record_failure(dirt, "bad", attempts=3)
    good = [one for one in dirt.entries if one.key == "good"]
    await bench.write(place, put("bad", "2"))
    await bench.acknowledge(replace(dirt, entries=good, left_out=True))
    assert bench.field(place, "f") == b"", "SQL has neither the value nor a newer one"


async def test_flushed_through_does_not_pass_a_letter_that_was_written_anew_since_the_reading(bench: Bench) -> None:
    place = await poisoned(bench)
    await bench.write(place, put("good", "2"))
    dirt = await bench.dirt(place)
    assert dirt.left_out
    await bench.write(place, put("bad", "2"))
    await bench.acknowledge(dirt)
    assert bench.field(place, "f") == b"", "SQL has neither the value nor a newer one"
    dirt = await bench.dirt(place)
    assert not dirt.left_out
    await bench.acknowledge(dirt)
    assert decode_revision(bench.field(place, "f")) == dirt.head.revision


async def test_a_flush_is_told_of_letters_and_does_not_wake_a_worker_for_them(bench: Bench) -> None:
    place = await poisoned(bench)
    revision = bench.field(place, "=bad")[:9]
    (state,) = await bench.hot.flush_state([place])
    assert (state.dead, state.marks) == ({"bad": revision}, 1)
    assert bench.due(place) is None


async def test_a_flush_still_asks_for_what_is_dirty_beside_a_letter(bench: Bench) -> None:
    place = await poisoned(bench)
    await bench.write(place, put("good", "2"))
    await bench.hot.flush_state([place])
    assert bench.due(place) == bench.clock.micros


async def test_a_suspect_is_no_letter_to_a_flush(bench: Bench) -> None:
    place = bench.user()
    await bench.install(place)
    await bench.write(place, put("bad", "1"))
    await bench.record_failure(await bench.dirt(place), "bad", attempts=3)
    (state,) = await bench.hot.flush_state([place])
    assert state.dead == {}


async def test_as_many_letters_as_a_scope_has_keys_rest(bench: Bench) -> None:
    place = bench.user()
    await bench.install(place)
    await bench.write(place, *(put(f"k{number}", "1") for number in range(9_000)))
    dirt = await bench.dirt(place)
    for entry in dirt.entries:
        bench.ask(
            "HSET",
            bench.key(place, "dead"),
            f"{place.ref.member}={entry.key}",
            bench.field(place, "=k0")[:9] + b"|1|3|0|why",
        )
    assert (await bench.acknowledge(replace(dirt, entries=[], left_out=True))).left == 9_000
    assert bench.due(place) is None
    assert len(await letters(bench)) == 9_000


# ---- heads
