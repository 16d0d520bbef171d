"""Writes a task's rows of a stream's batch; `epochs` explains why each row is stored once."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa

from ....client import AsyncClient
from ....client.deduplication import DeduplicationOff, switch_on
from ....errors import InvalidConfig
from ....security.client_credentials import ClientCredentials
from ..entry_boundaries import RowEntry
from ..writer import RowNumbers, TaskWriter, Written, run_task
from .epochs import EpochChain
from .sink_options import StreamWriteOptions
from .sort_rows import sorted_rows


class EpochTask(NamedTuple):
    """Identifies the rows of a task in a stream.

    Attributes:
        query: query id from the checkpoint.
        epoch: number of the batch.
        task: number of the task in its job.
    """

    query: str
    epoch: int
    task: int


def write_epoch(
    options: StreamWriteOptions, at: EpochTask, batches: Iterable[pa.RecordBatch], dropped: tuple[str, ...] = ()
) -> Written:
    """Write the rows of a task, and return once the broker has stored them all.

    Args:
        options: sink options.
        at: identifies the task and batch.
        batches: rows, in the same order in every attempt unless the options sort them.
        dropped: columns that are used only for sorting.

    Raises:
        RowsDiffer: an earlier attempt stored different rows.
        CheckpointBehind: the topic has later batches of the query.
        MagnetarError: a row cannot be written, or was not stored in time.
    """
    if options.sort_by:
        batches = sorted_rows(batches, options.sort_by, dropped)
    name = f"{options.prefix(at.query)}-stream-{at.task}"
    if options.write.effectively_once:
        return run_task(TaskWriter(options.write, at.task, name, EpochNumbers(name, at.epoch)), batches)
    # With a reused name, a deduplicating broker would drop other rows as duplicates.
    name = f"{name}-{uuid.uuid4().hex}"
    return run_task(TaskWriter(options.write, at.task, name, RowNumbers()), batches)


class EpochNumbers:
    """Sequence ids of a task attempt, derived from the epoch."""

    def __init__(self, name: str, epoch: int) -> None:
        self._name = name
        self._epoch = epoch
        self._chain: EpochChain | None = None

    async def begin(self, writer: TaskWriter, client: AsyncClient) -> None:
        """Open the producers of all partitions, and find out what earlier attempts stored.

        Raises:
            InvalidConfig: the broker does not deduplicate the topic.
            MagnetarError: a producer cannot be opened, or raised by `EpochChain`.
        """
        options = writer.options
        topic, url = options.topic, options.admin_url
        assert topic is not None  # `stream_write_options` has rejected options without both
        assert url is not None
        try:
            await asyncio.to_thread(switch_on, url, topic, ClientCredentials(options.security))
        except DeduplicationOff as error:
            raise InvalidConfig(
                f"{url} does not deduplicate {topic}, which exactly-once writes require: enable deduplication for the"
                f" namespace, or set effectivelyOnce=false: {error}"
            ) from error
        names = await writer.names(client, topic)
        opened = await asyncio.gather(*(writer.publisher.open(client, name) for name in names))
        self._chain = EpochChain(self._name, self._epoch, len(names), dict(zip(names, opened, strict=True)))

    def numbers(self, topic: str, rows: RowEntry) -> tuple[int, int | None]:
        """Return the sequence ids of the next entry; raises the same errors as `EpochChain.add`."""
        assert self._chain is not None
        return self._chain.add(topic, rows)

    def end(self) -> None:
        """Check that all stored entries were produced again; raises the same errors as `EpochChain.end`."""
        assert self._chain is not None
        self._chain.end()
