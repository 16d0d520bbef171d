"""Shortcuts for common operations of the official client."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any

import pulsar

RECEIVE_MS = 5000
RECEIPT_S = 10.0
SILENCE_MS = 300  # long enough for a wrong delivery on loopback, short enough to be used often


def send_all(
    producer: pulsar.Producer, payloads: Iterable[bytes], *, within_s: float = RECEIPT_S, **options: Any
) -> list[Any]:
    """Send without waiting for each receipt; return the message ids in order when all receipts have arrived."""
    ids: list[Any] = []
    failures: list[Any] = []
    payloads = list(payloads)
    done = threading.Event()

    def on_receipt(result: Any, message_id: Any) -> None:
        (ids if result == pulsar.Result.Ok else failures).append(message_id if result == pulsar.Result.Ok else result)
        if len(ids) + len(failures) == len(payloads):
            done.set()

    for payload in payloads:
        producer.send_async(payload, on_receipt, **options)
    producer.flush()
    assert done.wait(within_s), f"{len(ids)} of {len(payloads)} receipts"
    assert not failures, failures
    return ids


def receive_all(consumer: pulsar.Consumer, count: int, *, ack: bool = True) -> list[pulsar.Message]:
    """Receive exactly `count` messages and acknowledge each."""
    messages = []
    for _ in range(count):
        message = consumer.receive(RECEIVE_MS)
        if ack:
            consumer.acknowledge(message)
        messages.append(message)
    return messages


def datas(messages: Sequence[pulsar.Message]) -> list[bytes]:
    return [message.data() for message in messages]


def is_silent(consumer: pulsar.Consumer) -> bool:
    """Return whether no message arrives for a while."""
    try:
        message = consumer.receive(SILENCE_MS)
    except pulsar.Timeout:
        return True
    raise AssertionError(f"unexpected message {message.data()!r} {message.message_id()}")


def read_available(reader: pulsar.Reader) -> list[bytes]:
    """Read all messages from the reader's position to the end of the topic."""
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(RECEIVE_MS).data())
    return found


def position(message_id: Any) -> tuple[int, int]:
    """Return the ledger and entry of a message id."""
    return message_id.ledger_id(), message_id.entry_id()
