"""What tests of EFFECTIVELY_ONCE have in common: instances, and every output of a topic by its input."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
from magnetar.client.client import AsyncClient
from magnetar.client.config import ConsumerConfig
from magnetar.runtime.spec import InstanceSpec
from magnetar.runtime.thread.runtime import ThreadInstance, ThreadRuntime

EARLIEST = ConsumerConfig(initial_position="Earliest", receiver_queue_size=5000)


async def all_messages(client: AsyncClient, topic: str) -> list[bytes]:
    """Return every message that a topic, or its partitions, holds now."""
    messages: list[bytes] = []
    for partition in await client.partitions(topic):
        consumer = await client.subscribe(partition, "all", EARLIEST)
        await consumer.seek(0)
        last = await consumer.last_message_id()
        while last.entry_id >= 0:
            entry = await asyncio.wait_for(consumer.receive_entry(), 10)
            messages += entry.payloads
            if entry.message_id[:2] >= last[:2]:
                break
        await consumer.close()
    return messages


async def switch_on(web_url: str, topic: str) -> None:
    """Have a topic drop duplicates, as the worker does at a function's creation."""
    async with httpx.AsyncClient(base_url=web_url) as http:
        path = "/admin/v2/" + topic.replace("://", "/")
        await http.put(path)
        (await http.post(f"{path}/deduplicationEnabled", json=True)).raise_for_status()


async def eventually(condition: Callable[[], Awaitable[bool]], timeout_s: float = 20.0) -> None:
    """Wait until a condition holds that can only be asked for."""
    async with asyncio.timeout(timeout_s):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def running(service_url: str, spec: InstanceSpec) -> AsyncIterator[ThreadInstance]:
    """A thread instance with a client of its own, so that its end is the end of its connections."""
    runtime = ThreadRuntime(service_url)
    instance = await runtime.start(spec)
    try:
        yield instance
        await instance.stop(5)
    finally:
        await runtime.close()
