"""The chaos run tells of letters that came with a fault, and of no others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from tests.chaos.letters import LetterWatch
from tests.servers import RedisServer


class Server:
    """A Redis with letters and a clock."""

    def __init__(self) -> None:
        self.letters: dict[bytes, bytes] = {}
        self.now = 0

    @contextmanager
    def client(self) -> Iterator[Server]:
        """As that of a server."""
        yield self

    def scan_iter(self, **_: object) -> list[bytes]:
        """The hashes of letters."""
        return [b"dead"]

    def hgetall(self, _: bytes) -> dict[bytes, bytes]:
        """The letters."""
        return dict(self.letters)

    def time(self) -> tuple[int, int]:
        """The clock."""
        return self.now, 0

    def record_failure(self, name: str, attempts: int = 1) -> None:
        """Something is refused now."""
        self.letters[name.encode()] = b"000000001|0|%d|%d|why|with a bar" % (attempts, self.now * 1_000_000)


def strike(watch: LetterWatch, server: Server, *, accused: str = "", refuses: bool = False) -> list[str]:
    """What is told of a fault of ten seconds."""
    watch.begin(cast("RedisServer", server))
    server.now += 5
    if accused:
        server.record_failure(accused)
    server.now += 5
    return watch.end(cast("RedisServer", server), refuses=refuses)


def test_what_came_with_a_fault_is_told_once() -> None:
    watch, server = LetterWatch(), Server()
    assert strike(watch, server, accused="n=k") == ["n=k"]
    assert strike(watch, server) == []
    assert strike(watch, server, accused="n=k") == ["n=k"], "it was refused again"


def test_what_the_database_refused_is_not_told_under_a_later_fault() -> None:
    watch, server = LetterWatch(), Server()
    assert strike(watch, server, accused="n=k", refuses=True) == []
    older = dict(server.letters)
    assert strike(watch, server) == []
    server.letters.clear()
    watch.begin(cast("RedisServer", server))
    server.letters = older
    assert watch.end(cast("RedisServer", server), refuses=False) == [], "from an older file"
    assert strike(watch, server, accused="n=k") == ["n=k"]
