"""Send input to a function's topics, receive its output, and check its backlog."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx
from magnetar.client.client import AsyncClient
from magnetar.client.config import ConsumerConfig
from magnetar.client.consumers.received import Message
from magnetar.client.producers.outgoing import encode_entry

from tests.support.eventually import until
from tests.support.servers import Server

EARLIEST = ConsumerConfig(initial_position="Earliest", receiver_queue_size=5000)


async def send_batches(client: AsyncClient, topic: str, batches: Sequence[Sequence[bytes]]) -> None:
    """Send each batch as one entry."""
    producer = await client.create_producer(topic)
    for batch in batches:
        await producer.ready()
        producer.send_entry(encode_entry(batch))
    await producer.close()


async def receive(client: AsyncClient, topic: str, count: int) -> list[Message]:
    """Return a number of messages of a topic, and fail if there are more."""
    consumer = await client.subscribe(topic, "test", EARLIEST)
    messages = [await consumer.receive(30) for _ in range(count)]
    more = consumer.poll()
    assert more is None, f"more than {count} messages: {more}"
    await consumer.close()
    return messages


async def stats_of(server: Server, topic: str) -> Any:
    async with httpx.AsyncClient(timeout=60) as http:
        path = topic.replace("://", "/")
        return (await http.get(f"{server.web_url}/admin/v2/{path}/stats")).json()


async def backlog_of(server: Server, topic: str, subscription: str) -> int:
    return int((await stats_of(server, topic))["subscriptions"][subscription]["msgBacklog"])


async def no_backlog(server: Server, topic: str, subscription: str = "public/default/f") -> None:
    async def is_empty() -> bool:
        found = (await stats_of(server, topic)).get("subscriptions", {}).get(subscription)
        return found is not None and found["msgBacklog"] == 0  # an instance that is starting has none yet

    await until(is_empty)
