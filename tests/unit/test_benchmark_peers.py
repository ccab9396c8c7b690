"""The pure parts of the benchmarks of peers and of growth."""

from __future__ import annotations

from itertools import islice

import pytest

from benchmarks.growth import figures
from benchmarks.growth_sessions import short
from benchmarks.peers.__main__ import IN_FLIGHT, OURS, results
from benchmarks.peers.peer import ALL_KEYS, SESSIONS, MissingStateError, changes, check, initial_state, text, turns


@pytest.mark.parametrize("in_flight", IN_FLIGHT)
def test_agents_share_all_sessions_and_go_round_them(in_flight: int) -> None:
    each = SESSIONS // in_flight
    rounds = [list(islice(turns(agent, in_flight), 2 * each)) for agent in range(in_flight)]
    assert sorted(number for one in rounds for number, turn in one if turn == 1) == list(range(SESSIONS))
    assert {turn for one in rounds for _, turn in one} == {1, 2}


def test_a_turn_reads_three_scopes_of_ten_keys_of_a_hundred_bytes_and_writes_one_key_in_each() -> None:
    assert len(initial_state()) == ALL_KEYS == 30
    assert len(text(7)) + len('""') == 100
    assert set(changes(13)) == {"key3", "user:key3", "app:key3"}
    check(initial_state())
    with pytest.raises(MissingStateError):
        check(initial_state() | {"one_more": ""})


def test_a_peer_that_cannot_be_used_is_null_with_its_reason() -> None:
    found = {number: {OURS: [100.0, 110.0, 120.0], "langgraph": [50.0, 55.0, 40.0]} for number in IN_FLIGHT}
    values = results(found, [0.2, 0.4], {"django": "ImportError: No module named 'django'"})
    assert (values["langgraph_ratio"], values["langgraph_ratio_low"], values["langgraph_ratio_high"]) == (2.0, 2.0, 3.0)
    assert values["peers_sessioncache_64_per_s"] == 110.0
    assert values["peers_durable_after_s"] == 0.4
    for key in ("django_ratio", *(f"peers_django_{number}_per_s" for number in IN_FLIGHT)):
        assert values[key] is None
        assert values[f"{key}_reason"] == "ImportError: No module named 'django'"


def test_a_table_of_growth_shows_figures_with_their_spread() -> None:
    found = {"a_ratio": 1.0, "a_ratio_low": 0.9, "a_ratio_high": 1.25, "b_us": 1_500, "growth": [{"sessions": 1}]}
    assert figures(found) == [("a_ratio", "1.00 (0.90 to 1.25)"), ("b_us", "1,500.00")]


def test_numbers_of_sessions_are_told_in_short() -> None:
    assert [short(number) for number in (10, 1_000, 250_000, 1_000_000)] == ["10", "1k", "250k", "1m"]
