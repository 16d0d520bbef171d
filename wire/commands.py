"""The command envelope, the CONNECT command, and protocol constants.

Source: Pulsar binary protocol, section Connection. Every message in ``BaseCommand`` has the number of its type and
occurs once.
"""

from __future__ import annotations

from google.protobuf.message import Message

from . import pulsar_api_pb2
from .pulsar_api_pb2 import BaseCommand, CommandConnect, FeatureFlags

PROTOCOL_VERSION = 21
"""Highest protocol version that the broker and the client support."""
NO_REQUEST = (1 << 64) - 1
"""Request id of unsolicited commands, which is -1 as an unsigned number."""

_FIELDS: dict[type[Message], tuple[int, str]] = {
    getattr(pulsar_api_pb2, field.message_type.name): (field.number, field.name)
    for field in BaseCommand.DESCRIPTOR.fields
    if field.message_type
}


def wrap(command: Message) -> BaseCommand:
    """Wrap a command in its envelope: ``CommandPing()`` becomes a PING with ``ping`` set."""
    kind, name = _FIELDS[type(command)]
    return BaseCommand(type=kind, **{name: command})  # type: ignore[arg-type]


def connect_command(
    client_version: str, proxy_to_broker: str | None, method: str = "none", auth_data: bytes = b""
) -> CommandConnect:
    """Return a CONNECT command.

    Args:
        client_version: free text, shown in the broker's statistics.
        proxy_to_broker: ``host:port`` of the target broker if the connection is to a proxy.
        method: Pulsar's name of the authentication method. If set, the client must respond to AUTH_CHALLENGE.
        auth_data: the client's credentials.
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
