"""Position where a read of topics ended, to be used as the start of the next read."""

from __future__ import annotations

import ast
import contextlib
import json
import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..errors import InvalidConfig
from .source.partition import ReadEnd
from .source.source import FORMAT, PULSAR_FORMAT
from .source.streaming.places import from_json, to_json
from .spark_version import installed_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

FORMATS = (FORMAT, PULSAR_FORMAT)
KEEPS_PLANS_FROM = (4, 1)
"""First Spark version that plans a read of a Python source only once."""
_RELATION = "DataSourceV2ScanRelation"


def end_of(read: DataFrame | StreamingQuery) -> str:
    """Return the position where a read ends, to be used as ``startingOffsets`` of the next read.

    The position is that of the query plan, whether or not an action has run; calling this function fixes the plan of
    the DataFrame. If you read without ``endingOffsets`` and save the position together with the result, the next read
    continues without gaps or duplicates. ::

        orders = spark.read.format("magnetar").option("startingOffsets", before).load("orders")
        orders.write.format("delta").mode("append").save(path)
        before = end_of(orders)

    Args:
        read: a DataFrame that reads one or more topics, directly or through other DataFrames; or a stream, for which
            the position is that of its last progress.

    Returns:
        JSON such as ``{"persistent://public/default/orders": {"0": "5:18", "1": "7:0"}}``, by topic and partition.
        Topics without messages are omitted, so the next read starts at their first message.

    Raises:
        InvalidConfig: the DataFrame reads no topic, or reads one topic up to two different positions; the stream has
            not completed a batch; or the DataFrame is from Spark 4.0, which plans again for each action.
        PySparkException: the read cannot be planned.
    """
    found = list(_of_query(read) if hasattr(type(read), "lastProgress") else _of_frame(read))
    if not found:
        raise InvalidConfig(
            "the DataFrame does not read a topic with format magnetar: pass the DataFrame from before "
            "cache() or saving to a table"
        )
    ends: dict[str, Any] = {}
    for one in found:
        for topic, place in one.items():
            if ends.setdefault(topic, place) != place:
                raise InvalidConfig(
                    f"{topic} is read twice, up to {ends[topic]} and {place}: call end_of for each read separately"
                )
    return json.dumps(ends)


def _of_query(query: Any) -> Iterator[dict[str, Any]]:
    progress = query.lastProgress
    if progress is None:
        raise InvalidConfig("the stream has not completed a batch yet: call end_of once query.lastProgress is not None")
    for source in progress["sources"]:
        with contextlib.suppress(ValueError, SyntaxError, AttributeError, InvalidConfig):  # from another data source
            yield to_json(from_json(_offset(source["endOffset"])))


def _offset(text: str) -> Any:
    """Parse an offset from a query's progress; before PySpark 4.2 this is the repr of a Python dict."""
    try:
        return json.loads(text)
    except ValueError:
        return ast.literal_eval(text)


def _of_frame(frame: Any) -> Iterator[dict[str, Any]]:
    """Yield the plan of each read of a topic; Spark caches plans, so this does not plan again."""
    spark = installed_spark()
    if spark is not None and spark < KEEPS_PLANS_FROM:
        raise InvalidConfig(
            f"Spark {spark[0]}.{spark[1]} plans a read again for each action, so a read has no single end: install"
            " pyspark 4.1 or newer, or set endingOffsets"
        )
    plan = getattr(frame, "_jdf", None)
    if plan is None:
        raise InvalidConfig(
            "end_of requires the query plan, which Spark Connect does not expose: select the columns "
            "__topic and __messageId and take the highest message id of each topic"
        )
    leaves = plan.queryExecution().optimizedPlan().collectLeaves()
    for index in range(leaves.size()):
        leaf = leaves.apply(index)
        if leaf.getClass().getSimpleName() != _RELATION or leaf.relation().table().name() not in FORMATS:
            continue
        for partition in leaf.scan().toBatch().planInputPartitions():
            part = pickle.loads(bytes(partition.pickedPartition()))  # noqa: S301  pickled by our own worker
            if isinstance(part, ReadEnd) and part.ends is not None:
                yield json.loads(part.ends)
