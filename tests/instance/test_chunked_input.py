"""Messages that were sent in chunks: a function is given each of them as one."""

from __future__ import annotations

import hashlib
import random

import pytest
from magnetar.client.client import AsyncClient
from magnetar.client.config import ProducerConfig
from magnetar.wire import functions_pb2 as records

from tests.instance.test_retries import Start, retrying, start
from tests.support.function_topics import no_backlog, receive
from tests.support.instances import MakeSpec
from tests.support.servers import Server

__all__ = ["start"]  # a fixture

LARGE = random.Random(1).randbytes(11 * 1024 * 1024)
CODE = """
import hashlib
tries = 0
def process(data: bytes, context):
    global tries
    tries += 1
    if tries == 2 and context.get_message_key() == "again":
        raise ValueError("again")
    if MANUAL:
        context.ack(context.get_message_id(), context.get_current_message_topic_name())
    return hashlib.sha256(data).hexdigest()
"""


async def send(client: AsyncClient, topic: str, key: str | None = None) -> None:
    """Send a small message, a large one and a small one."""
    producer = await client.create_producer(topic, ProducerConfig(batching=False, chunking_enabled=True))
    for payload in (b"small", LARGE, b"poison"):
        await producer.send(payload, key=key)
    await producer.close()


@pytest.mark.parametrize(
    ("guarantee", "kind"),
    [
        (records.ATLEAST_ONCE, records.SHARED),
        (records.ATLEAST_ONCE, records.FAILOVER),
        (records.ATMOST_ONCE, records.SHARED),
        (records.MANUAL, records.SHARED),
    ],
)
async def test_chunks_are_one_message(
    server: Server, client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str, guarantee: int, kind: int
) -> None:
    fails = guarantee == records.ATLEAST_ONCE
    code = CODE.replace("MANUAL", str(guarantee == records.MANUAL))
    source = {"subscriptionType": kind, "negativeAckRedeliveryDelayMs": 20}
    await send(client, f"{topic}-in", "again" if fails else None)
    await start(make_spec(code, processingGuarantees=guarantee, source=source))
    outputs = [output.data.decode() for output in await receive(client, f"{topic}-out", 3)]
    assert sorted(outputs) == sorted(hashlib.sha256(data).hexdigest() for data in (b"small", LARGE, b"poison"))
    await no_backlog(server, f"{topic}-in")


async def test_letter_of_a_message_in_chunks_is_whole_and_holds_up_no_other(
    server: Server, client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str
) -> None:
    await send(client, f"{topic}-in")
    await start(make_spec("def process(data): raise ValueError('no')", **retrying(topic, 0)))
    letters = await receive(client, f"{topic}-dead", 3)
    assert sorted(len(letter.data) for letter in letters) == [5, 6, len(LARGE)]
    assert [letter.properties["EXCEPTION"] for letter in letters] == ["ValueError: no"] * 3
    assert LARGE in [letter.data for letter in letters]
    await no_backlog(server, f"{topic}-in")
