"""Membership manager: takes part in the election and reads the roster.

This worker's consumer on the failover subscription ``participants`` is its membership; while the broker calls it
active, the worker leads. No message ever passes.

The broker shows twice who is active: by an event to the consumer, which may come late by its failover delay, and in the
topic's statistics. Whichever shows first that another one is active ends this worker's leadership. When that other one
is gone before the broker has sent an event about it, none comes: then the statistics alone make this worker lead again.
The roster is read from the topic's statistics each time: a cached one would be wrong exactly when it matters.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from .roster import Member, Roster, read_roster

_log = logging.getLogger(__name__)


class Participation(Protocol):
    """Open consumer; `worker` implements it with the client."""

    async def close(self) -> None:
        """Leave."""


Join = Callable[[str, Callable[[bool], None]], Awaitable[Participation]]
"""Subscribes under a consumer name; the callback is given True when it became active and False when no longer."""

ReadStats = Callable[[], Awaitable[Mapping[str, Any]]]
"""Reads the statistics of the coordination topic."""


class MembershipManager:
    """This worker's membership of the cluster.

    Attributes:
        me: this worker.
        is_leader: whether the broker called its consumer active last.
    """

    def __init__(self, me: Member, join: Join, read_stats: ReadStats, on_leadership: Callable[[bool], None]) -> None:
        """Prepare; `on_leadership` is given each change of leadership, and must return quickly."""
        self.me = me
        self._join = join
        self._read_stats = read_stats
        self._on_leadership = on_leadership
        self._participation: Participation | None = None
        self.is_leader = False
        self._events = 0

    async def start(self) -> None:
        """Take part from now on."""
        self._participation = await self._join(self.me.consumer_name, self._became)
        # The failover delay has no meaning here, as no messages pass: a first worker need not wait a second to lead.
        await self.roster()

    def _became(self, is_active: bool) -> None:
        self._events += 1
        self._set_leader(is_active)

    def _set_leader(self, is_active: bool) -> None:
        if is_active == self.is_leader:
            return
        self.is_leader = is_active
        _log.info("worker %s %s", self.me.worker_id, "leads" if is_active else "follows")
        self._on_leadership(is_active)

    async def roster(self) -> Roster:
        """Return the connected workers, as the broker shows them now; a change of the leader shown there counts."""
        events = self._events
        roster = read_roster(await self._read_stats())
        if roster.leader is not None and events == self._events and self._participation is not None:
            self._set_leader(roster.leader == self.me)
        return roster

    async def stop(self) -> None:
        """Leave; another worker may lead at once."""
        participation, self._participation = self._participation, None
        if participation is not None:
            await participation.close()
        self._became(False)
