"""Common parts of tests of EFFECTIVELY_ONCE: instances, and all outputs of a topic by input."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from urllib.parse import quote
from uuid import uuid4

import httpx
from magnetar.client.client import AsyncClient
from magnetar.client.config import ConsumerConfig
from magnetar.client.producers.outgoing import encode_entry
from magnetar.instance.spec import InstanceSpec
from magnetar.runtime.process.runtime import ProcessRuntime
from magnetar.runtime.thread.runtime import ThreadInstance, ThreadRuntime
from magnetar.wire import functions_pb2 as records
from magnetar.wire.message_id import EARLIEST as EARLIEST_ID

from tests.support.pulsar import Broker

ExactSpec = Callable[..., InstanceSpec]
SUBSCRIPTION = "public/default/f"
EARLIEST = ConsumerConfig(initial_position="Earliest", receiver_queue_size=5000)


async def all_messages(client: AsyncClient, topic: str) -> list[bytes]:
    """Return all messages in a topic, or in its partitions.

    Each entry is counted once, by position: a consumer that reconnects receives entries twice.
    """
    messages: list[bytes] = []
    for partition in await client.partitions(topic):
        consumer = await client.subscribe(partition, "all", EARLIEST)
        await consumer.seek(0)
        last = await consumer.last_message_id()
        taken = (-1, -1)
        while last.entry_id >= 0:
            entry = await asyncio.wait_for(consumer.receive_entry(), 30)
            position = entry.message_id[:2]
            if position > taken:
                messages += entry.payloads
                taken = position
            if position >= last[:2]:
                break
        await consumer.close()
    return messages


def exact_spec_maker(make_spec: ExactSpec, server: Broker, state_url: str = "") -> ExactSpec:
    """Return a function that creates specs of EFFECTIVELY_ONCE functions, as recorded by a worker."""
    own = uuid4().hex[:8]

    def make(code: str, *, uuid: str = "u", incarnation: int = 0, **details: object) -> InstanceSpec:
        spec = make_spec(code, **details)
        spec.details.processingGuarantees = records.EFFECTIVELY_ONCE
        spec.details.source.subscriptionType = records.FAILOVER
        spec.metadata.functionUuid = f"{uuid}-{own}"
        spec.metadata.cursorIncarnation = incarnation
        return replace(spec, admin_url=server.web_url, state_url=state_url)

    return make


async def send(client: AsyncClient, topic: str, batches: int, messages: int, first: int = 0) -> list[bytes]:
    """Send numbered messages, and return them with an exclamation mark."""
    producer = await client.create_producer(topic)
    sent = []
    for batch in range(batches):
        payloads = [b"m%d" % number for number in range(first + batch * messages, first + (batch + 1) * messages)]
        await producer.ready()
        producer.send_entry(encode_entry(payloads))
        sent += [payload + b"!" for payload in payloads]
    await producer.close()
    return sent


async def count(client: AsyncClient, topic: str) -> int:
    return len(await all_messages(client, topic))


async def arrived(client: AsyncClient, topic: str, expected: int, timeout_s: float = 60.0) -> None:
    """Wait until a topic has a number of messages."""

    async def has_arrived() -> bool:
        return await count(client, topic) >= expected

    await eventually(has_arrived, timeout_s)


async def reset(client: AsyncClient, topic: str, server: Broker | None = None) -> None:
    """Move the function's cursor to the first message: by REST if an instance is running, else as a consumer."""
    if server is not None:
        async with httpx.AsyncClient(base_url=server.web_url, timeout=60) as http:
            path = "/admin/v2/" + topic.replace("://", "/")
            name = quote(SUBSCRIPTION, safe="")
            (await http.post(f"{path}/subscription/{name}/resetcursor/0")).raise_for_status()
        return
    consumer = await client.subscribe(topic, SUBSCRIPTION, ConsumerConfig(type="Failover"))
    await consumer.seek(EARLIEST_ID)
    await consumer.close()


async def no_backlog(server: Broker, topic: str) -> None:
    """Wait until all messages are acknowledged."""

    async def is_empty() -> bool:
        async with httpx.AsyncClient(base_url=server.web_url, timeout=60) as http:
            stats = (await http.get(f"/admin/v2/{topic.replace('://', '/')}/stats")).json()
        return int(stats["subscriptions"][SUBSCRIPTION]["msgBacklog"]) == 0

    await eventually(is_empty)


async def eventually(condition: Callable[[], Awaitable[bool]], timeout_s: float = 60.0) -> None:
    """Wait until a condition without a value holds."""
    async with asyncio.timeout(timeout_s):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def running(service_url: str, spec: InstanceSpec) -> AsyncIterator[ThreadInstance]:
    """Run a thread instance with its own client, so that ending the instance closes its connections."""
    runtime = ThreadRuntime(service_url)
    instance = await runtime.start(spec)
    try:
        yield instance
        await instance.stop(30)
    finally:
        await runtime.close()


async def kill_at(runtime: ProcessRuntime, spec: InstanceSpec, client: AsyncClient, topic: str, outputs: int) -> None:
    """Start an instance, and kill its process when its output topic has a number of messages."""
    instance = await runtime.start(spec)
    await arrived(client, topic, outputs)
    os.kill(instance.process_id, signal.SIGKILL)
    await instance.wait()


async def run_and_kill(
    runtime: ProcessRuntime, spec: InstanceSpec, client: AsyncClient, topic: str, rng: random.Random, total: int
) -> int:
    """Run an instance until its output topic has enough messages; return how often it was killed at random.

    It is mostly killed after it has produced output, however slow the machine is, and sometimes during its start.
    """
    kills = 0
    while (before := await count(client, topic)) < total:
        instance = await runtime.start(spec)
        if rng.random() < 0.75:
            await arrived(client, topic, before + 1)
        await asyncio.sleep(rng.uniform(0.0, 0.3))
        os.kill(instance.process_id, signal.SIGKILL)
        await instance.wait()
        kills += 1
    return kills
