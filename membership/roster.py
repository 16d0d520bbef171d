"""Reading who is there and who leads from the statistics of the coordination topic; pure.

Source: worker-internals of Pulsar Functions, leader election: the consumers of the failover subscription are the
members, named ``workerId:host:port``; the active one leads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SUBSCRIPTION = "participants"
LIFE = "life"
"""Property of a membership: another text each time that the worker is started. A reconnection keeps it."""


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

    The name is read from the right, since a worker id may hold colons; so may a host, in brackets.
    """
    rest, _, port = name.rpartition(":")
    if not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        return None
    if rest.endswith("]"):
        worker_id, _, host = rest[:-1].rpartition(":[")
    else:
        worker_id, _, host = rest.rpartition(":")
    return Member(worker_id, host, int(port)) if worker_id and host else None


@dataclass(frozen=True, slots=True)
class Roster:
    """Everybody who is there, by id, and who leads.

    Attributes:
        members: sorted by id.
        leader: one of them.
        lives: id and life of each.
    """

    members: tuple[Member, ...]
    leader: Member | None
    lives: Mapping[str, str]

    def member(self, worker_id: str) -> Member | None:
        """Return the member of that id."""
        return next((member for member in self.members if member.worker_id == worker_id), None)


def read_roster(topic_stats: Mapping[str, Any]) -> Roster:
    """Return the roster that the topic's statistics show; empty without the subscription."""
    subscription = topic_stats.get("subscriptions", {}).get(SUBSCRIPTION, {})
    lives: dict[Member, str] = {}
    for consumer in subscription.get("consumers", []):
        if member := parse_member(consumer.get("consumerName", "")):
            lives[member] = str((consumer.get("metadata") or {}).get(LIFE, ""))
    members = sorted(lives)
    active = parse_member(subscription.get("activeConsumerName") or "")
    leader = active if active in members else None
    return Roster(tuple(members), leader, {member.worker_id: lives[member] for member in members})
