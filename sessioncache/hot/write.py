"""A write: one object from the handle that makes it to the wire, and from the answer back to what became of it.

Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Sequence

from sessioncache.hot.client import Argument, Reply
from sessioncache.hot.fields import REMOVING, TEMP_PART
from sessioncache.hot.limits import check_size
from sessioncache.hot.messages import Part, Refused, Written, WrittenPart
from sessioncache.hot.signals import raise_unready
from sessioncache.primitives.names import KeyScope
from sessioncache.settings import MAX_CALL_BYTES, MAX_CALL_KEYS


class Write:
    """Changes of one or several scopes that are made in one atomic step, or not at all."""

    __slots__ = ("adds", "keys", "lease", "parts", "scopes", "size")

    def __init__(self, parts: Sequence[Part], scopes: Sequence[KeyScope] = (), lease: bytes = b"") -> None:
        """`scopes`: what each part is to the handle that writes; `lease`: token of the run lease that the writer must
        hold."""
        self.parts = parts
        self.scopes = scopes
        self.lease = lease
        self.keys = self.size = 0
        """Operations, and bytes of the values that they write."""
        self.adds = False
        """Whether it may make something larger: what only deletes is accepted where there is no room for others."""
        for part in parts:
            for code, _, text, _ in part.operations:
                self.keys += 1
                self.size += len(text)
                self.adds = self.adds or code not in REMOVING

    def check_size(self) -> None:
        """LimitExceededError where it is more than one call may write."""
        if self.keys > MAX_CALL_KEYS or self.size > MAX_CALL_BYTES:
            check_size(self.keys, self.size)

    def hashes(self) -> list[bytes]:
        """The keys of the script: control and hash of each part."""
        keys: list[bytes] = []
        for part in self.parts:
            keys += (part.place.control, part.place.temp if part.temp else part.place.hash)
        return keys

    def arguments(self) -> list[Argument]:
        """The parts as the script reads them: kind, birth, expected revision, parents, and the operations."""
        args: list[Argument] = []
        for place, operations, birth, if_revision, temp in self.parts:
            args += (TEMP_PART if temp else place.ref.kind, birth, if_revision, place.parents, len(operations))
            for operation in operations:
                args += operation
        return args

    def outcome(self, reply: Reply) -> Written | Refused:
        """What a reply of the script says.  Unready, Gone."""
        if reply[0] == b"ok":
            return Written(
                reply[1],
                [WrittenPart(part[0], part[1], part[2] == 1, part[3], *part[4:]) for part in reply[2:]],
            )
        raise_unready(reply, [part.place for part in self.parts])
        why = reply[0].decode()
        if why in ("lease", "erased"):
            return Refused(why, [])
        if why == "stale":
            return Refused(why, [(i - 1, j - 1) for i, j in zip(reply[1::2], reply[2::2], strict=True)])
        # The script counts from 1; 0 stands for no single operation, where a limit of the whole scope is met.
        where = [(reply[1] - 1, reply[2] - 1)]
        if why == "compute":
            return Refused(why, where, text=reply[3], revision=reply[4])
        return Refused(why, where, detail=reply[3].decode() if len(reply) > 3 else "")
