"""EFFECTIVELY_ONCE without state: outputs go straight to one topic, and the broker's deduplication makes them exact."""

from __future__ import annotations

from dataclasses import replace

import pytest
from magnetar.client.client import AsyncClient
from magnetar.client.outgoing import encode_entry
from magnetar.runtime.spec import InstanceSpec
from magnetar.wire import functions_pb2 as records

from tests.runtime.conftest import MakeSpec
from tests.runtime.exact import all_messages, eventually, running
from tests.support.servers import Server

ECHO = "def process(text):\n    return text + '!'\n"


@pytest.fixture
def exact_spec(make_spec: MakeSpec, server: Server) -> MakeSpec:
    """Specs of functions that are EFFECTIVELY_ONCE, as the worker records them."""

    def make(code: str, *, uuid: str = "u1", incarnation: int = 0, **details: object) -> InstanceSpec:
        spec = make_spec(code, **details)
        spec.details.processingGuarantees = records.EFFECTIVELY_ONCE
        spec.details.source.subscriptionType = records.FAILOVER
        spec.metadata.functionUuid = uuid
        spec.metadata.cursorIncarnation = incarnation
        return replace(spec, admin_url=server.web_url)

    return make


async def send(client: AsyncClient, topic: str, batches: int, messages: int, first: int = 0) -> list[bytes]:
    """Send numbered messages, and return what `ECHO` makes of them."""
    producer = await client.create_producer(topic)
    sent = []
    for batch in range(batches):
        payloads = [b"m%d" % number for number in range(first + batch * messages, first + (batch + 1) * messages)]
        await producer.ready()
        producer.send_entry(encode_entry(payloads))
        sent += [payload + b"!" for payload in payloads]
    await producer.close()
    return sent


async def test_every_message_comes_out_once_and_in_order(
    client: AsyncClient, server: Server, exact_spec: MakeSpec, topic: str
) -> None:
    expected = await send(client, f"{topic}-in", 50, 20)
    async with running(server.service_url, exact_spec(ECHO)):

        async def is_done() -> bool:
            return len(await all_messages(client, f"{topic}-out")) >= len(expected)

        await eventually(is_done)
    assert await all_messages(client, f"{topic}-out") == expected
