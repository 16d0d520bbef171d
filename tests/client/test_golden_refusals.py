"""What Apache Pulsar answered to credentials, recorded, and what our client makes of it: the error, at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import magnetar.errors
import pytest
from magnetar.client import AsyncClient, AuthenticationToken, ClientConfig
from magnetar.wire.commands import NO_REQUEST
from magnetar.wire.frames import encode_frame
from magnetar.wire.pulsar_api_pb2 import (
    BaseCommand,
    CommandConnected,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadataResponse,
    ServerError,
)

from tests.client.scripted import ScriptedBroker, refused

GOLDEN = Path(__file__).parent.parent / "golden" / "auth" / "client-matrix.jsonl"
ROWS = [row for line in GOLDEN.read_text().splitlines() if (row := json.loads(line))["view"] == "wire"]
CONNECTS = [row for row in ROWS if row["group"] == "connect"]
COMMANDS = [
    row
    for row in ROWS
    if row["group"] == "command"
    and row["command"] in ("LOOKUP", "PARTITIONED_METADATA", "PRODUCER", "SUBSCRIBE")
    and row["answer"].get("error") == "AuthorizationError"
]
TOPIC = "persistent://sec/ns/t"
CONFIG = ClientConfig(operation_timeout_s=30, authentication=AuthenticationToken("a.b.c"))


@pytest.mark.parametrize("row", [pytest.param(row, id=row["case"]) for row in CONNECTS])
async def test_a_recorded_answer_to_connect_is_taken_as_it_is_meant(row: dict[str, Any]) -> None:
    first = row["answers"][0]
    async with ScriptedBroker() as broker, AsyncClient(broker.service_url, CONFIG) as client:
        if first["type"] == "CONNECTED":
            answer = {name: value for name, value in first["connected"].items() if name != "feature_flags"}
            frame = encode_frame(BaseCommand(type=BaseCommand.CONNECTED, connected=CommandConnected(**answer)))
            broker.answers[BaseCommand.CONNECT] = lambda _c, _p: [frame]
            await client.create_producer(TOPIC)
            return
        code, message = ServerError.Value(first["error"]["error"]), first["error"]["message"]
        broker.answers[BaseCommand.CONNECT] = lambda _c, _p: [refused(NO_REQUEST, code, message)]
        with pytest.raises(getattr(magnetar.errors, first["error"]["error"]), match="refused the connection: ") as said:
            await client.create_producer(TOPIC)
        assert message in str(said.value)
        assert broker.connections == 1


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row['command']} {row['role']}") for row in COMMANDS])
async def test_a_recorded_denial_of_a_command_is_raised_at_once(row: dict[str, Any]) -> None:
    command, message = row["command"], row["answer"]["message"]
    denials: dict[str, Callable[[BaseCommand], bytes]] = {
        "LOOKUP": lambda given: denied_lookup(given.lookupTopic.request_id, message),
        "PARTITIONED_METADATA": lambda given: denied_partitions(given.partitionMetadata.request_id, message),
        "PRODUCER": lambda given: refused(given.producer.request_id, ServerError.AuthorizationError, message),
        "SUBSCRIBE": lambda given: refused(given.subscribe.request_id, ServerError.AuthorizationError, message),
    }
    async with ScriptedBroker() as broker, AsyncClient(broker.service_url, CONFIG) as client:
        broker.answers[BaseCommand.Type.Value(command)] = lambda given, _: [denials[command](given)]
        with pytest.raises(magnetar.errors.AuthorizationError, match=message):
            await (client.create_producer(TOPIC) if command != "SUBSCRIBE" else client.subscribe(TOPIC, "s"))
        assert len(broker.commands(BaseCommand.Type.Value(command))) == 1


def denied_lookup(request_id: int, message: str) -> bytes:
    answer = CommandLookupTopicResponse(
        response=CommandLookupTopicResponse.Failed, request_id=request_id, error=ServerError.AuthorizationError,
        message=message,
    )  # fmt: skip
    return encode_frame(BaseCommand(type=BaseCommand.LOOKUP_RESPONSE, lookupTopicResponse=answer))


def denied_partitions(request_id: int, message: str) -> bytes:
    answer = CommandPartitionedTopicMetadataResponse(
        response=CommandPartitionedTopicMetadataResponse.Failed, request_id=request_id,
        error=ServerError.AuthorizationError, message=message,
    )  # fmt: skip
    return encode_frame(BaseCommand(type=BaseCommand.PARTITIONED_METADATA_RESPONSE, partitionMetadataResponse=answer))
