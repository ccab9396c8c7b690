"""The record of retentions: how long the sessions of each app are kept, as SQL holds it.  Pure: no I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from sessioncache.primitives.scopes import app_id

PARTS = 16
"""How often the use of a session is recorded within a retention."""
_PREFIX = "retention:"


@dataclass(frozen=True, slots=True)
class Retention:
    """How long the sessions of one app are kept."""

    org: str
    app: str
    seconds: float

    @property
    def name(self) -> str:
        """The name of the record."""
        return _PREFIX + app_id(self.org, self.app)

    def encode(self) -> str:
        """The value of the record."""
        return json.dumps({"org": self.org, "app": self.app, "seconds": self.seconds})


def retentions(record: Mapping[str, str]) -> list[Retention]:
    """All recorded retentions, without those that keep sessions for ever."""
    found = [Retention(**json.loads(value)) for name, value in record.items() if name.startswith(_PREFIX)]
    return [one for one in found if one.seconds > 0]
