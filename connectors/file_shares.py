"""Distribution of files among the instances of the ``file`` source, and time entries in their positions.

A file belongs to the instance whose number is the inode modulo the parallelism. A position lists the files that were
read and, if there are too many, a time: all files of the share whose status has not changed since then were read. When
the parallelism changes, files and their entries move to other instances. A time entry moves together with the share it
applies to.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ..api.connector import Position


class Share(NamedTuple):
    """The files of one instance.

    Attributes:
        number: instance number.
        parallelism: number of instances.
    """

    number: int
    parallelism: int

    def has(self, inode: int) -> bool:
        """Return whether a file belongs to this share."""
        return inode % self.parallelism == self.number

    def meets(self, other: Share) -> bool:
        """Return whether a file can belong to both shares."""
        common = math.gcd(self.parallelism, other.parallelism)
        return self.number % common == other.number % common

    def includes(self, other: Share) -> bool:
        """Return whether all files of the other share also belong to this one."""
        return other.parallelism % self.parallelism == 0 and self.has(other.number)


class ReadBefore(NamedTuple):
    """A time in nanoseconds since 1970, and the share whose files last changed before that time were all read."""

    share: Share
    time_ns: int

    def covers(self, other: ReadBefore) -> bool:
        """Return whether this entry makes the other one redundant."""
        return self.time_ns >= other.time_ns and self.share.includes(other.share)

    def says_read(self, status: os.stat_result) -> bool:
        """Return whether, according to this entry, a file was read."""
        return status.st_ctime_ns <= self.time_ns and self.share.has(status.st_ino)


def read_before(position: Any, share: Share) -> list[ReadBefore]:
    """Return the time entries of a share's position."""
    own = [ReadBefore(share, position["before"])] if position.get("before") else []
    return own + [ReadBefore(Share(number, count), time_ns) for number, count, time_ns in position.get("inherited", ())]


def pruned(times: Iterable[ReadBefore]) -> list[ReadBefore]:
    """Return the entries that no other entry covers."""
    kept: list[ReadBefore] = []
    for time in sorted(set(times), key=lambda one: (one.time_ns, -one.share.parallelism), reverse=True):
        if not any(other.covers(time) for other in kept):
            kept.append(time)
    return kept


def divide(positions: Sequence[Position], share: Share) -> dict[str, Any] | None:
    """Return a share's position derived from the positions for another parallelism, or None if all are empty."""
    given = [(Share(number, len(positions)), one) for number, one in enumerate(positions) if one is not None]
    if not given:
        return None
    files = {key: place for _, one in given for key, place in one.get("files", {}).items() if share.has(inode_of(key))}
    stays = [key for _, one in given for key in one.get("stays", ()) if share.has(inode_of(key))]
    times = [time for old, one in given for time in read_before(one, old) if time.share.meets(share)]
    inherited = [(*time.share, time.time_ns) for time in pruned(times)]
    return {"files": files} | ({"stays": stays} if stays else {}) | ({"inherited": inherited} if inherited else {})


def inode_of(key: str) -> int:
    """Return the inode number from the key of a file or truncated text."""
    return int(key.partition("~")[0].rpartition(":")[2])
