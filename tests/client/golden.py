"""Compare the frames of our client with those of official clients in the same situation.

The recordings in `tests/golden/wire` were made between official clients and an Apache Pulsar 4.0.7; each file starts
with its calls. Tests make the same calls with our client through a proxy that records every frame.

Not compared: request ids, times, generated names, versions and feature flags; fields that are at their default on one
side and absent on the other; when and in how many frames acknowledgements are sent (only what they come to).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from google.protobuf.json_format import ParseDict
from magnetar.wire.ack_set import intersect
from magnetar.wire.frames import Frame
from magnetar.wire.payload import open_payload
from magnetar.wire.pulsar_api_pb2 import BaseCommand, CommandAck, MessageMetadata

FOLDER = Path(__file__).parents[1] / "golden" / "wire"
IGNORED = frozenset(
    {
        "request_id", "client_version", "protocol_version", "feature_flags", "publish_time", "consumer_epoch",
        "highest_sequence_id", "proxy_to_broker_url", "force_topic_creation",
    }
)  # fmt: skip
"""Java sends consumer epochs and highest sequence ids, and C++ does not; both are correct."""
APART = frozenset({"CONNECT", "PING", "PONG", "ACK", "FLOW"})
SENTINELS = frozenset({(1 << 64) - 1, (1 << 63) - 1})
FIRST_LEDGER = 1_000_000

Sent = tuple[int, BaseCommand, MessageMetadata | None, Any]
"""Connection, command, metadata, and the compared part of the body."""


def recorded(name: str) -> list[Sent]:
    """Return the frames that the official client sent."""
    lines = [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text().splitlines()[1:]]
    return [_recorded(line) for line in lines if line["dir"] == "C" and "command" in line]


def _recorded(line: dict[str, Any]) -> Sent:
    command = ParseDict(_numbers(line["command"]), BaseCommand(), ignore_unknown_fields=True)
    metadata = ParseDict(_numbers(line["metadata"]), MessageMetadata()) if "metadata" in line else None
    body: Any = None
    if "batch" in line:
        body = [message["payload"].get("text") for message in line["batch"]]
    elif "payload" in line and metadata is not None and not metadata.compression:
        body = [line["payload"].get("text")]
    return line["conn"], command, metadata, body


def _numbers(value: Any) -> Any:
    """Replace names of numbers by the numbers."""
    if isinstance(value, dict):
        return {key: _numbers(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_numbers(part) for part in value]
    if value == "<ms>":
        return 0
    if isinstance(value, str) and value[:1] == "L" and value[1:].isdigit():
        return FIRST_LEDGER + int(value[1:]) - 1
    return value


def sent(frames: Iterable[tuple[int, Frame]]) -> list[Sent]:
    """Return the frames that our client sent, in the form of `recorded`."""
    result: list[Sent] = []
    for connection, (command, payload) in frames:
        if not payload:
            result.append((connection, command, None, None))
            continue
        metadata, offset = open_payload(payload)
        body = None if metadata.compression else _bodies(payload[offset:], metadata)
        result.append((connection, command, metadata, body))
    return result


def _bodies(body: bytes, metadata: MessageMetadata) -> list[str]:
    from magnetar.wire.batch import decode_batch

    if not metadata.HasField("num_messages_in_batch"):
        return [body.decode()]
    return [payload.decode() for payload in decode_batch(body, metadata.num_messages_in_batch)[0]]


class Conversation:
    """One side's frames in comparable form.

    Attributes:
        requests: all frames except acknowledgements and flow, by connection.
        flows: permits in the order of sending, by consumer.
        acks: what is left of each position after all acknowledgements; cumulative positions apart.
    """

    def __init__(self, frames: list[Sent], *, without: frozenset[str] = frozenset()) -> None:
        self._ledgers: dict[int, int] = {}
        self.requests: dict[int, list[Any]] = {}
        self.flows: dict[int, list[int]] = {}
        self.acks: dict[Any, tuple[int, ...] | None] = {}
        for connection, command, metadata, body in frames:
            kind = BaseCommand.Type.Name(command.type)
            if kind == "FLOW":
                self.flows.setdefault(command.flow.consumer_id, []).append(command.flow.messagePermits)
            elif kind == "ACK":
                self._add_ack(command.ack)
            elif kind not in APART | without:
                fields = command.ListFields()[1][1]
                shown = [kind, self._shown(fields), None if metadata is None else self._shown(metadata), body]
                self.requests.setdefault(connection, []).append(shown)

    def _add_ack(self, ack: CommandAck) -> None:
        for data in ack.message_id:
            key = (ack.consumer_id, ack.ack_type, self._ledger(data.ledgerId), data.entryId)
            words = tuple(data.ack_set)
            before = self.acks.get(key)
            self.acks[key] = words if before is None else intersect(before, words)

    def _ledger(self, ledger_id: int) -> int:
        if ledger_id in SENTINELS or ledger_id >= FIRST_LEDGER:
            return ledger_id
        return self._ledgers.setdefault(ledger_id, FIRST_LEDGER + len(self._ledgers))

    def _shown(self, message: Any) -> Any:
        result: dict[str, Any] = {}
        for field, value in message.ListFields():
            if field.name in IGNORED:
                continue
            if field.name == "ledgerId":
                result[field.name] = self._ledger(value)
            elif field.name == "uncompressed_size" and not message.compression:
                continue  # Java says it of plain messages too, and so do we: compaction needs it
            elif field.name in ("consumer_name", "subscription", "producer_name") and not _is_chosen(value):
                continue
            elif field.is_repeated:
                result[field.name] = [self._shown(part) if field.message_type else part for part in value]
            elif field.message_type:
                result[field.name] = self._shown(value)
            elif value != field.default_value:
                result[field.name] = value
        return result


def _is_chosen(name: str) -> bool:
    """Return whether a name was set by the scenario; other names are generated."""
    return name in ("p1", "p2", "s", "t") or name.startswith("consumer-")
