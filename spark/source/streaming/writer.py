"""Stream writer for Spark, which creates one for the plan of each batch and another for its commit."""

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
        """Stand-in for the base class that PySpark provides from 4.1; 4.0 passes record batches to any Arrow writer."""


BATCH = "streaming.sql.batchId"
QUERY = "sql.streaming.queryId"
"""Local properties that Spark sets for the tasks of a stream."""
log = logging.getLogger(__name__)


@dataclass
class EpochWritten(WriterCommitMessage):
    """Outcome of a task, sent to the driver.

    Attributes:
        written: numbers of written rows.
        warning: reason why rows are stored at least once although the options do not request it, with the remedy; or
            empty.
        first_batch: number of the first batch in this query run.
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
        """Write the rows of a task, and return once they are stored."""
        from .sink import EpochTask, write_epoch

        context = TaskContext.get()
        assert context is not None
        query, epoch = context.getLocalProperty(QUERY), context.getLocalProperty(BATCH)
        if not query or epoch is None:
            raise InvalidConfig(f"Spark did not report the query and batch: {QUERY}={query}, {BATCH}={epoch}")
        at = EpochTask(query, int(epoch), context.partitionId())
        verdict = plan_verdict(context.getLocalProperty)
        options = self._options.decided(verdict.reason)
        return EpochWritten(write_epoch(options, at, iterator, self._dropped), options.warning, verdict.first_batch)

    def commit(self, messages: list[Any], batchId: int) -> None:
        """Log the number of written rows, which are visible already; a lost commit is repeated."""
        there = [message for message in messages if message is not None]
        parts = [message.written for message in there]
        log.info(
            "batch %d: wrote %d rows to %s with %d tasks; %d more were already stored",
            batchId,
            sum(part.rows for part in parts),
            self._options.write.topic or "the topics of the rows",
            len(messages),
            sum(part.duplicates for part in parts),
        )
        if there and there[0].warning and batchId == there[0].first_batch:
            log.warning(
                "writing rows to %s at least once, so they may be duplicated if a task or the query fails: %s; set"
                " effectivelyOnce=false to silence this warning",
                self._options.write.topic or "the topics of the rows",
                there[0].warning,
            )
        if batchId == 0:
            from ..keeping import warn_unless_kept

            warn_unless_kept(self._options.write)

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Log the number of stored rows of a failed batch, which remain in the topic."""
        log.warning(
            "batch %d failed with at least %d rows stored in %s%s",
            batchId,
            sum(message.written.rows for message in messages if message is not None),
            self._options.write.topic or "the topics of the rows",
            ", which will be skipped when the batch is repeated" if self._is_exact(messages) else "",
        )

    def _is_exact(self, messages: list[Any]) -> bool:
        has_warned = any(message.warning for message in messages if message is not None)
        return self._options.write.effectively_once and not has_warned
