"""The memory watch, which enforces `resources.ram`.

Design: the kernel's own limits are not suitable. `RLIMIT_AS` and `RLIMIT_DATA` count reserved memory, which for a
program with threads or numeric libraries is many times the memory used, and count each process separately; `RLIMIT_RSS`
has no effect. So the memory in use is checked twice a second, for an instance and all processes that it started, and an
instance above its limit is killed. An instance that grows by gigabytes per second exceeds the limit for half a second;
if the machine's memory runs out meanwhile, the kernel kills it before others.

The cheap measure, resident memory, counts shared pages too; the exact one is only read above the limit.
"""

from __future__ import annotations

import math
import os
import time

from . import marks, proc

LOOK_S = 0.5
FAMILY_S = 2.0
"""Interval of looking up processes started by instances, which scans all processes of the machine, in seconds."""
FAMILY_COST_PART = 0.01
"""Maximum share of time spent on looking up processes."""
MIB = 1024 * 1024


class MemoryWatch:
    """Monitors the memory of all instances of a zygote.

    Attributes:
        next_look_s: when to call `look` again, by `time.monotonic`; infinite without instances.
    """

    def __init__(self) -> None:
        self.next_look_s = math.inf
        self._limits: dict[int, int] = {}
        self._users: dict[int, int] = {}
        self._families: dict[int, list[int]] = {}
        self._next_families_s = 0.0

    def add(self, process_id: int, limit_bytes: int, user: int | None = None) -> None:
        """Watch an instance; if a user is given, processes of other users are not attributed to it."""
        self._limits[process_id] = limit_bytes
        if user is not None:
            self._users[process_id] = user
        self.next_look_s = min(self.next_look_s, time.monotonic() + LOOK_S)

    def remove(self, process_id: int) -> None:
        """Stop watching an instance."""
        self._limits.pop(process_id, None)
        self._users.pop(process_id, None)
        self._families.pop(process_id, None)
        if not self._limits:
            self.next_look_s = math.inf

    def look(self, now_s: float) -> list[tuple[int, str]]:
        """Return the instances that exceed their limits, with the reasons to kill them; empty before `next_look_s`."""
        if now_s < self.next_look_s:
            return []
        self.next_look_s = now_s + LOOK_S
        if now_s >= self._next_families_s:
            self._find_families()
            self._next_families_s = now_s + max(FAMILY_S, (time.monotonic() - now_s) / FAMILY_COST_PART)
        found = []
        for process_id, limit_bytes in self._limits.items():
            family = (process_id, *self._families.get(process_id, ()))
            if sum(map(proc.resident_bytes, family)) <= limit_bytes:
                continue
            used_bytes = sum(map(proc.own_bytes, family))
            if used_bytes > limit_bytes:
                found.append((process_id, _verdict(used_bytes, limit_bytes, len(family))))
        return found

    def _find_families(self) -> None:
        marked = marks.find(os.getpid())
        zygote = os.getpid()
        self._families.clear()
        by_mark: dict[int, list[int]] = {}
        for process_id, mark in marked.items():
            by_mark.setdefault(mark, []).append(process_id)
        for process_id in self._limits:
            mark = marked.get(process_id, 0)
            if marks.is_of(mark, zygote):
                user = self._users.get(process_id)
                self._families[process_id] = [
                    one for one in by_mark[mark] if one != process_id and (user is None or proc.user_of(one) == user)
                ]


def _verdict(used_bytes: int, limit_bytes: int, processes: int) -> str:
    where = "" if processes == 1 else f" in {processes} processes"
    return (
        f"the instance was killed because it used {used_bytes // MIB} MiB{where}, more than {limit_bytes // MIB} MiB"
        " (resources.ram): reduce the function's memory use or increase --ram"
    )
