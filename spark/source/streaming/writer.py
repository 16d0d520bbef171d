"""The stream writer used by Spark: one for the plan of each batch, and another for its commit."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyspark.sql.datasource
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from ....errors import InvalidConfig
from ..first_line import told_first
from .plan_verdict import plan_verdict
from .sink_options import StreamWriteOptions

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter

    from ..writer import Written
elif hasattr(pyspark.sql.datasource, "DataSourceStreamArrowWriter"):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:

    class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):
        """The base class that PySpark has from 4.1 on: 4.0 passes record batches to any Arrow writer."""


BATCH = "streaming.sql.batchId"
QUERY = "sql.streaming.queryId"
"""Properties that Spark sets for the tasks of a stream."""
log = logging.getLogger(__name__)


@dataclass
class EpochWritten(WriterCommitMessage):
    """The outcome of a task, sent to the driver.

    Attributes:
        written: numbers of rows.
        warning: why they are stored at least once although the options do not ask for it, and what to do; or empty.
        first_batch: number of the first batch in this run of the query.
    """

    written: Written
    warning: str = ""
    first_batch: int = 0


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream."""

    def __init__(self, options: StreamWriteOptions, dropped: tuple[str, ...] = ()):
        self._options = options
        self._dropped = dropped

    @told_first
    def write(self, iterator: Iterator[Any]) -> EpochWritten:
        """Write the rows of one task; returns when they are stored."""
        from .sink import EpochTask, write_epoch

        context = TaskContext.get()
        assert context is not None
        query, epoch = context.getLocalProperty(QUERY), context.getLocalProperty(BATCH)
        if not query or epoch is None:
            raise InvalidConfig(
                f"Spark does not say which batch of which query this is: {QUERY}={query}, {BATCH}={epoch}"
            )
        at = EpochTask(query, int(epoch), context.partitionId())
        verdict = plan_verdict(context.getLocalProperty)
        options = self._options.decided(verdict.reason)
        return EpochWritten(write_epoch(options, at, iterator, self._dropped), options.warning, verdict.first_batch)

    def commit(self, messages: list[Any], batchId: int) -> None:
        """Report what was written; it is visible already, and a lost commit is repeated."""
        there = [message for message in messages if message is not None]
        parts = [message.written for message in there]
        log.info(
            "batch %d: %d rows written to %s by %d tasks, %d more were there already",
            batchId,
            sum(part.rows for part in parts),
            self._options.write.topic or "the topics of its rows",
            len(messages),
            sum(part.duplicates for part in parts),
        )
        if there and there[0].warning and batchId == there[0].first_batch:
            log.warning(
                "rows are written to %s at least once, and may be repeated when a task or the query fails: %s; or set"
                " effectivelyOnce=false to write so without this warning",
                self._options.write.topic or "the topics of its rows",
                there[0].warning,
            )
        if batchId == 0:
            from ..keeping import warn_unless_kept

            warn_unless_kept(self._options.write)

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Report how many rows of a failed batch are stored; they stay, and are not stored again."""
        log.warning(
            "batch %d failed; at least %d rows of it stay in %s%s",
            batchId,
            sum(message.written.rows for message in messages if message is not None),
            self._options.write.topic or "the topics of its rows",
            ", and are left out when it is run again" if self._is_exact(messages) else "",
        )

    def _is_exact(self, messages: list[Any]) -> bool:
        has_warned = any(message.warning for message in messages if message is not None)
        return self._options.write.effectively_once and not has_warned
