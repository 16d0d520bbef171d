"""A command in its frame's envelope, and what both sides say of the protocol.

Source: Pulsar binary protocol; every message of ``BaseCommand`` has the number of its type, and each occurs once.
"""

from __future__ import annotations

from google.protobuf.message import Message

from . import pulsar_api_pb2
from .pulsar_api_pb2 import BaseCommand

PROTOCOL_VERSION = 21
"""Highest version of the protocol that broker and client know."""
NO_REQUEST = (1 << 64) - 1
"""Request id of what no request asked for: -1 as the unsigned number of the wire."""

_FIELDS: dict[type[Message], tuple[int, str]] = {
    getattr(pulsar_api_pb2, field.message_type.name): (field.number, field.name)
    for field in BaseCommand.DESCRIPTOR.fields
    if field.message_type
}


def wrap(command: Message) -> BaseCommand:
    """Return the envelope of a command: ``CommandPing()`` becomes PING with its ``ping``."""
    kind, name = _FIELDS[type(command)]
    return BaseCommand(type=kind, **{name: command})  # type: ignore[arg-type]
