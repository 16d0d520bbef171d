"""Membership manager: participates in leader election and reads the roster.

This worker's consumer on the failover subscription ``participants`` is its membership; while it is the active consumer,
the worker is the leader. No messages are sent. Members are named ``workerId:host:port``, as in Pulsar Functions.

The broker reports the active consumer in two ways: by an event to the consumer, which may be delayed by the failover
delay, and in the topic's statistics. The first of them to report another consumer as active ends this worker's
leadership. If that consumer disconnects before the broker has sent an event about it, no event follows, and only the
statistics restore this worker's leadership. The roster is read from the topic's statistics each time, because a cached
one would be stale exactly when it matters.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..errors import RequestRefused

SUBSCRIPTION = "participants"
INCARNATION = "life"  # as written by workers of older versions
"""Consumer property with a string that changes when the worker restarts, but not when it reconnects."""
TLS_PORT = "workerPortTls"
"""Consumer property with the TLS port of the REST API, if any. Older versions ignore it and use the name's port."""

ID_CHARACTERS_MAX = 255
_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}")
_HOST_6 = re.compile(r"[0-9A-Fa-f:.]{2,45}")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, order=True)
class Member:
    """A worker: its id and the address of its REST API.

    Attributes:
        worker_id: worker id.
        host: host of its REST API.
        port: port of its REST API in the consumer name, which is the port without TLS if there is one.
        tls_port: TLS port, or 0. Ignored in comparisons, because the consumer name alone identifies the leader.
    """

    worker_id: str
    host: str
    port: int
    tls_port: int = field(default=0, compare=False)

    @property
    def consumer_name(self) -> str:
        """Name under which the worker subscribes."""
        return f"{self.worker_id}:{self._shown_host}:{self.port}"

    @property
    def url(self) -> str:
        """URL of its REST API, with TLS if available."""
        return f"https://{self._shown_host}:{self.tls_port}" if self.tls_port else self.plain_url

    @property
    def plain_url(self) -> str:
        """URL of its REST API without TLS, which does not work for a TLS-only worker."""
        return f"http://{self._shown_host}:{self.port}"

    def url_for(self, *, by_tls: bool) -> str:
        """Return the URL to use, with or without TLS as requested if both are available."""
        return self.url if by_tls or self.is_tls_only else self.plain_url

    @property
    def is_tls_only(self) -> bool:
        """Whether the worker only has a TLS port."""
        return self.port == self.tls_port

    @property
    def _shown_host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def parse_member(name: str, properties: Mapping[str, Any] | None = None) -> Member | None:
    """Return the member described by a consumer's name and properties, or None if they are invalid.

    The name is parsed from the right, because a worker id may contain colons, and so may a host in brackets. Any client
    can choose any consumer name; a consumer whose name yields no URL, or is not printable, is not a member.
    """
    rest, _, shown_port = name.rpartition(":")
    port, tls_port = _port(shown_port), _port(str((properties or {}).get(TLS_PORT, "")))
    if not port:
        return None
    if rest.endswith("]"):
        worker_id, _, host = rest[:-1].rpartition(":[")
        is_host = _HOST_6.fullmatch(host)
    else:
        worker_id, _, host = rest.rpartition(":")
        is_host = _HOST.fullmatch(host)
    is_id = 0 < len(worker_id) <= ID_CHARACTERS_MAX and worker_id.isprintable()
    return Member(worker_id, host, port, tls_port) if is_id and is_host else None


def _port(text: str) -> int:
    """Parse a port; return 0 if it is invalid."""
    is_number = text.isascii() and text.isdigit() and len(text) <= 5
    return int(text) if is_number and int(text) < 65536 else 0


@dataclass(frozen=True, slots=True)
class Roster:
    """All connected workers, and the leader.

    Attributes:
        members: the workers, sorted by id.
        leader: one of the members, or None.
        incarnations: incarnations of the members by worker id.
    """

    members: tuple[Member, ...]
    leader: Member | None
    incarnations: Mapping[str, str]

    def member(self, worker_id: str) -> Member | None:
        """Return the member with an id, or None."""
        return next((member for member in self.members if member.worker_id == worker_id), None)


def participants(topic_stats: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the name and properties of each consumer of the subscription, even of non-members."""
    consumers = _subscription(topic_stats).get("consumers")
    return [
        (str(one.get("consumerName", "")), _mapping(one.get("metadata")))
        for one in (consumers if isinstance(consumers, list) else [])
        if isinstance(one, Mapping)
    ]


def _subscription(topic_stats: Mapping[str, Any]) -> Mapping[str, Any]:
    return _mapping(_mapping(topic_stats.get("subscriptions")).get(SUBSCRIPTION))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def read_roster(topic_stats: Mapping[str, Any]) -> Roster:
    """Return the roster from the topic's statistics. It is empty if the subscription does not exist."""
    incarnations: dict[Member, str] = {}
    for name, properties in participants(topic_stats):
        if member := parse_member(name, properties):
            incarnations[member] = str(properties.get(INCARNATION, ""))
    members = sorted(incarnations)
    active = parse_member(str(_subscription(topic_stats).get("activeConsumerName")))
    leader = next((member for member in members if member == active), None)
    return Roster(tuple(members), leader, {member.worker_id: incarnations[member] for member in members})


def without_tls(member: Member) -> str:
    """Return the error message for a TLS-only worker that cannot send requests to a member without TLS."""
    return (
        f"worker {member.worker_id} at {member.plain_url} has no TLS, but this worker has no workerPort and sends"
        " requests only over TLS: set tlsEnabled and workerPortTls on that worker"
    )


class Participation(Protocol):
    """An open consumer on the participants subscription. `worker` implements it with the client."""

    async def close(self) -> None:
        """Leave the subscription."""


Join = Callable[[str, Callable[[bool], None]], Awaitable[Participation]]
"""Subscribes with a consumer name. The callback receives True when the consumer becomes active, False when inactive."""

ReadStats = Callable[[], Awaitable[Mapping[str, Any]]]
"""Reads the statistics of the coordination topic."""


class MembershipManager:
    """This worker's membership in the cluster.

    Attributes:
        me: this worker.
        is_leader: whether the broker last reported this worker's consumer as active.
    """

    def __init__(self, me: Member, join: Join, read_stats: ReadStats, on_leadership: Callable[[bool], None]) -> None:
        """Create a manager. ``on_leadership`` is called on each change of leadership and must return quickly."""
        self.me = me
        self._join = join
        self._read_stats = read_stats
        self._on_leadership = on_leadership
        self._participation: Participation | None = None
        self.is_leader = False
        self._events = 0

    async def start(self) -> None:
        """Join the cluster."""
        self._participation = await self._join(self.me.consumer_name, self._became)
        # No messages are sent, so the failover delay is not needed: the first worker becomes leader without waiting.
        await self.roster()

    def _became(self, is_active: bool) -> None:
        self._events += 1
        self._set_leader(is_active)

    def _set_leader(self, is_active: bool) -> None:
        if is_active == self.is_leader:
            return
        self.is_leader = is_active
        _log.info("worker %s is now %s", self.me.worker_id, "the leader" if is_active else "a follower")
        self._on_leadership(is_active)

    async def roster(self) -> Roster:
        """Return the workers currently connected to the broker, and apply any change of leader found there."""
        events = self._events
        roster = read_roster(await self._read_stats())
        if roster.leader is not None and events == self._events and self._participation is not None:
            self._set_leader(roster.leader == self.me)
        return roster

    def url_of(self, member: Member) -> str:
        """Return the URL for requests to another worker: with TLS if both support it or the other is TLS-only.

        Raises:
            RequestRefused: this worker is TLS-only, and the other has no TLS.
        """
        if self.me.is_tls_only and not member.tls_port:
            raise RequestRefused(503, without_tls(member))
        return member.url_for(by_tls=bool(self.me.tls_port))

    async def stop(self) -> None:
        """Leave the cluster; another worker may become leader immediately."""
        participation, self._participation = self._participation, None
        if participation is not None:
            await participation.close()
        self._became(False)
