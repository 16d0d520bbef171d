"""Producer admission: decisions for the access modes, without I/O.

A topic is either shared by many producers or owned by one. The topic epoch counts owners, and is persisted before a new
owner receives its response, so that a former owner that reconnects with its old epoch is always fenced.

Source: Pulsar binary protocol, section Access modes.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import BrokerError, NotAllowed, ProducerBusy, ProducerFenced
from ...wire.pulsar_api_pb2 import ProducerAccessMode


@dataclass(frozen=True, slots=True, kw_only=True)
class Producers:
    """The producers of a topic.

    Attributes:
        exclusive: name of the owner; None if the topic is shared.
        connected: number of producers that may send.
        waiting: number of producers that wait for ownership.
        epoch: topic epoch; None if the topic never had an owner.
    """

    exclusive: str | None
    connected: int
    waiting: int
    epoch: int | None


@dataclass(frozen=True, slots=True)
class Share:
    """Admit the producer as one of many."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Queue the producer until the topic has no other producers."""


@dataclass(frozen=True, slots=True)
class Own:
    """Admit the producer as owner once ``epoch`` is durable; with ``fences``, fence all other producers."""

    epoch: int
    fences: bool


Decision = Share | Wait | Own

MAX_EPOCH_ASKED = 1 << 62
"""Maximum epoch that a producer may request for a new topic, which is never reached by counting."""


def admit(mode: int, requested_epoch: int | None, producers: Producers) -> Decision:
    """Return how a new producer is admitted.

    Raises:
        BrokerError: the producer is not admitted.
    """
    if mode == ProducerAccessMode.Shared:
        if producers.exclusive is not None or producers.waiting:
            raise ProducerBusy(f"Topic has an existing exclusive producer: {producers.exclusive}")
        return Share()
    if mode == ProducerAccessMode.Exclusive:
        if producers.exclusive is not None or producers.waiting:
            raise ProducerFenced(f"Topic has an existing exclusive producer: {producers.exclusive}")
        if producers.connected:
            raise ProducerFenced("Topic has existing shared producers")
    if mode == ProducerAccessMode.WaitForExclusive and producers.connected:
        return Wait()
    fences = mode == ProducerAccessMode.ExclusiveWithFencing and producers.connected > 0
    return Own(next_epoch(requested_epoch, producers.epoch), fences)


def next_epoch(requested: int | None, current: int | None) -> int:
    """Return the epoch of a new owner.

    Raises:
        ProducerFenced: the producer was the owner before, but the topic has had another owner since.
        NotAllowed: no owner ever had the requested epoch, and it is too high for the wire format.
    """
    if requested is None:
        return 0 if current is None else current + 1
    if current is not None and requested < current:
        raise ProducerFenced(f"Topic epoch has already moved. Current epoch: {current}, Producer epoch: {requested}")
    if requested > max(current or 0, MAX_EPOCH_ASKED):
        raise NotAllowed(f"topic_epoch={requested} is out of range: use the epoch returned by the broker, or omit it")
    return requested


FENCED_OUT: BrokerError = ProducerFenced("Fenced out")
"""Error for a waiting producer that is fenced by another producer."""
