"""Fills topics, and reads them as Spark tasks do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from magnetar.client import AsyncClient, ProducerConfig
from magnetar.client.producers.outgoing import encode_entry
from magnetar.spark.source.options import ReadOptions, read_options
from magnetar.spark.source.ranges import TopicRange
from magnetar.spark.source.topic_metadata import plan_read


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def fill(service_url: str, topic: str, entries: Iterable[Sequence[bytes]], **config: Any) -> None:
    """Publish each sequence as one entry."""

    async def fill() -> None:
        async with AsyncClient(service_url) as client:
            producer = await client.create_producer(topic, ProducerConfig(**config))
            for entry in entries:
                await producer.ready()
                producer.send_entry(encode_entry(entry, compression=config.get("compression", "NONE")))
            await producer.flush()
            await producer.close()

    asyncio.run(fill())


def publish(service_url: str, topic: str, payload: bytes, **message: Any) -> None:
    """Publish a single message without batching."""

    async def publish() -> None:
        async with AsyncClient(service_url) as client:
            producer = await client.create_producer(topic, ProducerConfig(batching=False, empty_deletes=False))
            await producer.send(payload, **message)
            await producer.close()

    asyncio.run(publish())


def options_for(service_url: str, topic: str, **options: str) -> ReadOptions:
    return read_options({"service.url": service_url, "topic": topic, **options})


def planned(options: ReadOptions, ranges: int = 1) -> list[TopicRange]:
    return plan_read(options, ranges, 1)


def read_all(options: ReadOptions, ranges: Sequence[TopicRange]) -> list[dict[str, Any]]:
    """Return the rows of all ranges in order."""
    from magnetar.spark.source.columns import read_range

    return [row for wanted in ranges for batch in read_range(wanted, options) for row in batch.to_pylist()]


def values(options: ReadOptions, ranges: int = 1) -> list[bytes]:
    return [row["value"] for row in read_all(options, planned(options, ranges))]
