"""Roster of workers, read from the statistics of the coordination topic; pure.

Source: worker-internals of Pulsar Functions, leader election: the consumers of the failover subscription are the
members, named ``workerId:host:port``; the active one leads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SUBSCRIPTION = "participants"
INCARNATION = "life"  # what workers of earlier versions write
"""Property of a membership: another text each time that the worker is started. A reconnection keeps it."""

ID_CHARACTERS_MAX = 255
_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}")
_HOST_6 = re.compile(r"[0-9A-Fa-f:.]{2,45}")


@dataclass(frozen=True, slots=True, order=True)
class Member:
    """One worker: its id and where its REST interface answers."""

    worker_id: str
    host: str
    port: int

    @property
    def consumer_name(self) -> str:
        """The name under which it subscribes."""
        return f"{self.worker_id}:{self._shown_host}:{self.port}"

    @property
    def url(self) -> str:
        """Where its REST interface answers."""
        return f"http://{self._shown_host}:{self.port}"

    @property
    def _shown_host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def parse_member(name: str) -> Member | None:
    """Return the member that a consumer name denotes, None if it denotes none.

    The name is read from the right, since a worker id may hold colons; so may a host, in brackets. Anybody may consume
    under any name: one that makes no URL, or no line of a log, denotes nobody.
    """
    rest, _, port = name.rpartition(":")
    if not (port.isascii() and port.isdigit() and len(port) <= 5) or not 0 < int(port) < 65536:
        return None
    if rest.endswith("]"):
        worker_id, _, host = rest[:-1].rpartition(":[")
        is_host = _HOST_6.fullmatch(host)
    else:
        worker_id, _, host = rest.rpartition(":")
        is_host = _HOST.fullmatch(host)
    is_id = 0 < len(worker_id) <= ID_CHARACTERS_MAX and worker_id.isprintable()
    return Member(worker_id, host, int(port)) if is_id and is_host else None


@dataclass(frozen=True, slots=True)
class Roster:
    """All connected workers, by id, and the leader.

    Attributes:
        members: sorted by id.
        leader: one of them.
        incarnations: id and incarnation of each.
    """

    members: tuple[Member, ...]
    leader: Member | None
    incarnations: Mapping[str, str]

    def member(self, worker_id: str) -> Member | None:
        """Return the member of that id."""
        return next((member for member in self.members if member.worker_id == worker_id), None)


def participants(topic_stats: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return name and properties of every consumer of the subscription, whoever it is."""
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
    """Return the roster that the topic's statistics show; empty without the subscription."""
    incarnations: dict[Member, str] = {}
    for name, properties in participants(topic_stats):
        if member := parse_member(name):
            incarnations[member] = str(properties.get(INCARNATION, ""))
    members = sorted(incarnations)
    active = parse_member(str(_subscription(topic_stats).get("activeConsumerName")))
    leader = active if active in members else None
    return Roster(tuple(members), leader, {member.worker_id: incarnations[member] for member in members})
