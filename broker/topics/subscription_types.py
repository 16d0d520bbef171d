"""Subscription types: their names, and which of them this broker has."""

from __future__ import annotations

from ...errors import NotAllowed
from ...wire.pulsar_api_pb2 import CommandSubscribe


def kind_name(kind: int | None) -> str:
    """Return the name of a subscription type."""
    return "None" if kind is None else CommandSubscribe.SubType.Name(kind)


def check_kind(kind: int) -> None:
    """Raise for a type that this broker does not have.

    Raises:
        NotAllowed: names it.
    """
    if kind == CommandSubscribe.Key_Shared:
        raise NotAllowed("Key_Shared subscriptions are not supported by this broker yet; use Shared or Failover")
