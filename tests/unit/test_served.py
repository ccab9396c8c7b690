"""R4: what Redis answered before it stopped serving a connection was executed."""

from __future__ import annotations

import pytest
from redis.exceptions import BusyLoadingError

from sessioncache.errors import HotTierUnavailableError
from sessioncache.hot.client import _check_served
from sessioncache.hot.errors import is_not_executed, is_unanswered


def test_only_where_the_first_command_was_turned_away_nothing_was_executed() -> None:
    with pytest.raises(HotTierUnavailableError) as turned_away:
        _check_served([BusyLoadingError(), BusyLoadingError()])
    assert is_not_executed(turned_away.value)
    with pytest.raises(HotTierUnavailableError) as later:
        _check_served([[b"ok"], BusyLoadingError()])
    assert is_unanswered(later.value)
    _check_served([[b"ok"], {}])
