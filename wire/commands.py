"""A command in its frame's envelope, the first one of a client, and what both sides say of the protocol.

Source: Pulsar binary protocol, section Connection; every message of ``BaseCommand`` has the number of its type, and
each occurs once.
"""

from __future__ import annotations

from google.protobuf.message import Message

from . import pulsar_api_pb2
from .pulsar_api_pb2 import BaseCommand, CommandConnect, FeatureFlags

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


def connect_command(
    client_version: str, proxy_to_broker: str | None, method: str = "none", auth_data: bytes = b""
) -> CommandConnect:
    """Return CONNECT.

    Args:
        client_version: free text, shown in the broker's statistics.
        proxy_to_broker: ``host:port`` of the broker that is meant, where the connection goes to a proxy.
        method: Pulsar's name of how the client says who it is. With one it must answer AUTH_CHALLENGE.
        auth_data: what it shows.
    """
    is_known = method != "none"
    return CommandConnect(
        client_version=client_version,
        protocol_version=PROTOCOL_VERSION,
        auth_method_name=method,
        auth_data=auth_data if is_known else None,
        # A broker may put its own metadata before an entry; the payload reader skips it.
        feature_flags=FeatureFlags(supports_auth_refresh=is_known, supports_broker_entry_metadata=True),
        proxy_to_broker_url=proxy_to_broker,
    )
