"""Limits on entries published to a topic: maximum size, publish rate, encryption.

Topics without such limits have no gate, so no check is made.
"""

from __future__ import annotations

from collections.abc import Callable

from ...wire.topic_name import TopicName
from ..policies.effective import EffectivePolicies
from ..policies.rate_limit import RateLimit, follow


class Gate:
    """The limits of one topic.

    Attributes:
        max_bytes: maximum size of an entry with its metadata; None if the frame limit is enough.
        limit: publish rate of the topic; None if unlimited.
        shared: limits that the topic shares with others.
        takes_encrypted_only: whether entries must be encrypted.
    """

    def __init__(
        self,
        max_bytes: int | None,
        limit: RateLimit | None,
        shared: tuple[RateLimit, ...] = (),
        *,
        takes_encrypted_only: bool = False,
    ) -> None:
        self.max_bytes = max_bytes
        self.limit = limit
        self.shared = shared
        self.takes_encrypted_only = takes_encrypted_only

    def refusal(self, bytes_: int) -> str | None:
        """Return the error for an entry that is too large, or None."""
        return "Exceed maximum message size" if self.max_bytes is not None and bytes_ > self.max_bytes else None

    def wait_s(self) -> float:
        """Return how long publishing is blocked, in seconds; 0 if it is not."""
        wait_s = 0.0 if self.limit is None else self.limit.wait_s()
        for limit in self.shared:
            wait_s = max(wait_s, limit.wait_s())
        return wait_s

    def take(self, messages: int, bytes_: int) -> None:
        """Charge published messages to the limits."""
        if self.limit is not None:
            self.limit.take(messages, bytes_)
        for limit in self.shared:
            limit.take(messages, bytes_)


def gate_for(
    name: TopicName,
    policies: EffectivePolicies,
    max_message_bytes: int,
    gate: Gate | None,
    clock: Callable[[], float],
    shared: tuple[RateLimit, ...] = (),
) -> Gate | None:
    """Return the gate of a topic; None if it has no limits beyond the broker's.

    Args:
        name: of the topic.
        policies: of the topic.
        max_message_bytes: the broker's limit.
        gate: the previous gate; its publish rate continues if unchanged.
        clock: monotonic seconds.
        shared: limits that the topic shares with others.
    """
    limit = follow(gate.limit if gate is not None else None, policies.publish_rate, clock)
    takes_encrypted_only = must_be_encrypted(name, policies)
    # The broker's largest message excludes the metadata; only a smaller limit includes it, as in Pulsar.
    max_bytes = policies.max_message_bytes if policies.max_message_bytes < max_message_bytes else None
    if limit is None and not shared and max_bytes is None and not takes_encrypted_only:
        return None
    return Gate(max_bytes, limit, shared, takes_encrypted_only=takes_encrypted_only)


def must_be_encrypted(name: TopicName, policies: EffectivePolicies) -> bool:
    """Return whether messages of a topic must be encrypted; never for system topics."""
    return policies.encryption_required and not name.local.startswith("__")
