"""Writes the rows of a DataFrame to topics, each row once regardless of the number of task attempts.

Design: each task has its own producer with the same name in every attempt, and uses the number of an entry's first row
as its sequence id. A broker that deduplicates the topic drops repeated entries, because their boundaries are always the
same (`entry_boundaries`). Nothing therefore depends on Spark's commit: rows are visible as soon as they are written,
and commit and abort only log.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import uvloop

from ...client import AsyncClient
from ...client.config import ClientConfig, ProducerConfig
from ...client.encryption.keys import UriKeyReader
from ...client.producers.outgoing import encode_entry
from ...client.schemas.schema import Schema
from ...errors import InvalidConfig
from ...security.client_credentials import ClientCredentials
from ...wire.topic_name import parse_topic_name
from .connection import Routes, ask
from .entry_boundaries import EntryBuilder, RowEntry, partition_of
from .options import WriteOptions
from .publishing import TaskPublisher, partition_names
from .rows import is_plain, outgoing_rows, payloads_of
from .security_options import told_where

log = logging.getLogger(__name__)

POLICY_TIMEOUT_S = 15.0
_POLL_S = 0.5


class Written(NamedTuple):
    """Numbers of rows written by a task.

    Attributes:
        rows: rows stored by this attempt.
        duplicates: rows already stored by earlier attempts.
    """

    rows: int
    duplicates: int


def write_rows(options: WriteOptions, task: int, batches: Iterable[pa.RecordBatch]) -> Written:
    """Write the rows of a task, and return once the broker has stored them all.

    Args:
        options: write options.
        task: number of the task in its job, which is appended to ``options.name_prefix`` for the producer name.
        batches: rows, in the same order in every attempt.

    Raises:
        MagnetarError: a row cannot be written, or was not stored in time.
    """
    return run_task(TaskWriter(options, task, f"{options.name_prefix}-{task}", RowNumbers()), batches)


def run_task(writer: TaskWriter, batches: Iterable[pa.RecordBatch]) -> Written:
    """Same as `write_rows`, for a given writer and numbering."""
    with told_where(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(writer.write(iter(batches)))


class Numbering(Protocol):
    """Assigns sequence ids to the entries of an attempt."""

    async def begin(self, writer: TaskWriter, client: AsyncClient) -> None:
        """Prepare for the attempt, before any row is requested."""

    def numbers(self, topic: str, rows: RowEntry) -> tuple[int, int | None]:
        """Return the lowest and the highest sequence id of the next entry; None to derive the highest from its rows."""

    def end(self) -> None:
        """Check the attempt after all entries have been sent."""


class RowNumbers:
    """Uses the number of an entry's first row as its sequence id."""

    async def begin(self, writer: TaskWriter, client: AsyncClient) -> None:
        """Do nothing."""

    def numbers(self, topic: str, rows: RowEntry) -> tuple[int, int | None]:
        """Return the number of the first row."""
        return rows.first_row, None

    def end(self) -> None:
        """Do nothing."""


class TaskWriter:
    """An attempt of a task.

    Attributes:
        options: write options.
        task: number of the task in its job.
        publisher: publisher of the attempt.
    """

    def __init__(self, options: WriteOptions, task: int, name: str, numbering: Numbering) -> None:
        """Create a writer; ``name`` is the producer name."""
        self.options = options
        self.task = task
        self._partitions: dict[str, list[str]] = {}
        self._builders: defaultdict[str, EntryBuilder] = defaultdict(
            lambda: EntryBuilder(options.entry_rows, options.entry_bytes)
        )
        self._numbering = numbering
        self.publisher = TaskPublisher(
            name,
            options.send_timeout_ms,
            options.admin_url or "",
            security=options.security,
            encryption=_encryption(options),
            max_pending_messages=options.pending_messages,
            schema=_schema(options),
        )

    async def write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows, and return once they are stored.

        Cancellation: rows already sent remain in the topic.
        """
        loop = asyncio.get_running_loop()
        # Rows from Spark are awaited in another thread, so that the event loop can keep connections alive and handle
        # receipts.
        executor = ThreadPoolExecutor(1, "rows")
        first_row = 0
        try:
            async with _client(self.options) as client:
                await self._numbering.begin(self, client)
                while (batch := await loop.run_in_executor(executor, next, batches, None)) is not None:
                    await self._take(client, batch, first_row)
                    first_row += batch.num_rows
                for topic, builder in self._builders.items():
                    rest = builder.rest()
                    if rest is not None:
                        await self._send(client, topic, rest)
                self._numbering.end()
                await self.publisher.finish()
        finally:
            executor.shutdown(wait=False)
        duplicates = self.publisher.duplicates
        return Written(first_row - duplicates, duplicates)

    async def _take(self, client: AsyncClient, batch: pa.RecordBatch, first_row: int) -> None:
        topic = self.options.topic
        if self.options.schema is not None:
            batch = self.options.schema.encoded(batch)
        if topic is not None and is_plain(batch, topic) and len(await self.names(client, topic)) == 1:
            [name] = self._partitions[topic]
            for entry in self._builders[name].add_plain(first_row, payloads_of(batch)):
                await self._send(client, name, entry)
            return
        for row, outgoing in enumerate(outgoing_rows(batch), first_row):
            target = topic if topic is not None else outgoing.topic
            if not target:
                raise InvalidConfig(f"no __topic in row {row} of task {self.task}: set it, or set option topic")
            names = self._partitions.get(target) or await self.names(client, target)
            name = names[partition_of(row, outgoing.key, len(names))]
            full = self._builders[name].add(row, outgoing.payload, outgoing.header)
            if full is not None:
                await self._send(client, name, full)

    async def names(self, client: AsyncClient, topic: str) -> list[str]:
        """Return the full names of the partitions for a topic's rows, or the topic's name if it is not partitioned."""
        names = self._partitions.get(topic)
        if names is None:
            count = self.options.partitions if topic == self.options.topic else None
            names = await client.partitions(topic) if count is None else partition_names(topic, count)
            self._partitions[topic] = names
        return names

    async def _send(self, client: AsyncClient, name: str, rows: RowEntry) -> None:
        lowest, highest = self._numbering.numbers(name, rows)
        entry = encode_entry(
            rows.payloads,
            rows.headers,
            compression=self.options.compression,
            sequence_id=lowest,
            highest_sequence_id=highest,
        )
        await self.publisher.send(client, name, len(rows.payloads), lambda producer: producer.send_entry(entry))
        await asyncio.sleep(0)  # let the loop send the entry and handle receipts


def pinned(options: WriteOptions) -> WriteOptions:
    """Return options with a fixed number of partitions, because partitions may be added before a task is retried.

    Raises:
        InvalidConfig: the topic has fewer partitions than the options state, so it may have been recreated.
        MagnetarError: the broker does not answer.
    """
    if options.topic is None:
        return options
    name = parse_topic_name(options.topic)
    routes = Routes(options.service_url, options.security, options.timeouts)
    there = 0 if name.partition >= 0 else routes.partitions(name, makes=True)
    wanted = options.partitions
    if wanted is None:
        return replace(options, partitions=there)
    if wanted > there or (there and not wanted):
        raise InvalidConfig(
            f"topic.partitions={wanted}, but {name} has {there}: the topic may have been recreated; correct or omit"
            " the option"
        )
    return options


def switch_deduplication_on(options: WriteOptions) -> None:
    """Enable deduplication of the destination topic and verify it.

    Raises:
        InvalidConfig: deduplication cannot be enabled.
        MagnetarError: the request failed.
    """
    topic, url = options.topic, options.admin_url
    assert topic is not None  # `write_options` has rejected the option without both
    assert url is not None
    path = f"/admin/v2/{parse_topic_name(topic).base.rest_path}/deduplicationEnabled"
    credentials = ClientCredentials(options.security)
    with told_where():
        asyncio.run(_make_exist(options, topic))
    ask(url, "POST", path, body=True, credentials=credentials)
    deadline = time.monotonic() + POLICY_TIMEOUT_S
    # In Apache Pulsar, a policy is propagated through a topic before it takes effect.
    while (is_on := ask(url, "GET", path, credentials=credentials)) is not True:
        if time.monotonic() > deadline:
            raise InvalidConfig(
                f"effectivelyOnce: {url} did not enable deduplication of {topic} (response: {is_on}): enable it for the"
                " namespace and omit effectivelyOnce"
            )
        time.sleep(_POLL_S)


async def _make_exist(options: WriteOptions, topic: str) -> None:
    """Create a topic in the same way as publishing to it would, because policies require an existing topic."""
    async with _client(options) as client:
        await (await client.create_producer(topic, ProducerConfig(**_encryption(options)))).close()


def register_schema(options: WriteOptions) -> None:
    """Register the schema of the rows for the topic; raises the same errors as `schemas.writing.register`."""
    from .schemas.writing import register

    with told_where():
        asyncio.run(register(options, _encryption(options)))


def _schema(options: WriteOptions) -> Schema[bytes] | None:
    """Return the schema that producers declare, or None for bytes without a schema."""
    if options.schema is None:
        return None
    from .schemas.writing import Encoded

    return Encoded(options.schema.info)


def _client(options: WriteOptions) -> AsyncClient:
    config = ClientConfig(
        description="spark",
        connection_timeout_s=options.timeouts.connect_s,
        operation_timeout_s=options.timeouts.request_s,
        **options.security.to_dict(),
    )
    return AsyncClient(options.service_url, config)


def _encryption(options: WriteOptions) -> dict[str, Any]:
    """Return the encryption settings of producers; empty without encryption."""
    names = options.encryption_keys
    return {"encryption_keys": names, "crypto_key_reader": UriKeyReader(options.public_key)} if names else {}
