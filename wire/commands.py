"""A command in its frame's envelope, and what both sides say of the protocol.

Source: Pulsar binary protocol; every message of ``BaseCommand`` has the number of its type, and each occurs once.
"""

from __future__ import annotations

from google.protobuf.message import Message

from .pulsar_api_pb2 import BaseCommand

PROTOCOL_VERSION = 21
"""Highest version of the protocol that broker and client know."""
NO_REQUEST = (1 << 64) - 1
"""Request id of what no request asked for: -1 as the unsigned number of the wire."""

_FIELDS = {field.message_type.name: field for field in BaseCommand.DESCRIPTOR.fields if field.message_type}


def wrap(command: Message) -> BaseCommand:
    """Return the envelope of a command: ``CommandPing()`` becomes PING with its ``ping``."""
    field = _FIELDS[command.DESCRIPTOR.name]
    return BaseCommand(type=field.number, **{field.name: command})  # type: ignore[arg-type]
