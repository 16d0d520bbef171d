"""Limits on publishing to a topic: maximum message size, publish rate, and mandatory encryption.

Topics without such limits have no gate, so no checks are made.
"""

from __future__ import annotations

from collections.abc import Callable

from ...wire.topic_name import TopicName
from ..policies.effective import EffectivePolicies
from ..policies.rate_limit import RateLimit, follow


class Gate:
    """The publish limits of a topic.

    Attributes:
        max_bytes: maximum size of an entry including metadata; None if only the frame limit applies.
        limit: publish rate limit of the topic; None if unlimited.
        shared: rate limits that the topic shares with others.
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
        """Return the error message for an entry that is too large, or None."""
        return "Exceed maximum message size" if self.max_bytes is not None and bytes_ > self.max_bytes else None

    def wait_s(self) -> float:
        """Return the number of seconds for which publishing is blocked, or 0."""
        wait_s = 0.0 if self.limit is None else self.limit.wait_s()
        for limit in self.shared:
            wait_s = max(wait_s, limit.wait_s())
        return wait_s

    def take(self, messages: int, bytes_: int) -> None:
        """Count published messages towards the rate limits."""
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
    """Return the gate of a topic, or None if only the broker's limits apply.

    Args:
        name: topic name.
        policies: effective policies of the topic.
        max_message_bytes: the broker's maximum message size.
        gate: previous gate, whose publish rate limit is reused if unchanged.
        clock: monotonic clock, in seconds.
        shared: rate limits that the topic shares with others.
    """
    limit = follow(gate.limit if gate is not None else None, policies.publish_rate, clock)
    takes_encrypted_only = must_be_encrypted(name, policies)
    # As in Pulsar, the broker's limit excludes the metadata, while a lower limit of a policy includes it.
    max_bytes = policies.max_message_bytes if policies.max_message_bytes < max_message_bytes else None
    if limit is None and not shared and max_bytes is None and not takes_encrypted_only:
        return None
    return Gate(max_bytes, limit, shared, takes_encrypted_only=takes_encrypted_only)


def must_be_encrypted(name: TopicName, policies: EffectivePolicies) -> bool:
    """Return whether messages of a topic must be encrypted; system topics are exempt."""
    return policies.encryption_required and not name.local.startswith("__")
