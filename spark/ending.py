"""Returns where a read of topics ended, as the start of the next one."""

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
    """Return the position where a read ends, as ``startingOffsets`` for the next read.

    The end is that of the plan, whether or not an action has run: a DataFrame whose end is fixed here keeps it. Read
    without ``endingOffsets`` and save this together with the result, and the next read goes on without gap or
    repetition. ::

        orders = spark.read.format("magnetar").option("startingOffsets", before).load("orders")
        orders.write.format("delta").mode("append").save(path)
        before = end_of(orders)

    Args:
        read: a DataFrame over one or more topics, including derived ones; or a stream, as of its last progress.

    Returns:
        JSON such as ``{"persistent://public/default/orders": {"0": "5:18", "1": "7:0"}}``, by topic and partition.
        Topics without messages are left out, and so read from their beginning next time.

    Raises:
        InvalidConfig: it reads no topic, or one topic with two ends; or a stream has had no batch yet; or it is a
            DataFrame of Spark 4.0, which plans again for each action.
        PySparkException: the read cannot be planned.
    """
    found = list(_of_query(read) if hasattr(type(read), "lastProgress") else _of_frame(read))
    if not found:
        raise InvalidConfig("it reads no topic through format magnetar; give the DataFrame before cache() or a table")
    ends: dict[str, Any] = {}
    for one in found:
        for topic, place in one.items():
            if ends.setdefault(topic, place) != place:
                raise InvalidConfig(f"{topic} is read twice, up to {ends[topic]} and {place}; ask for each read alone")
    return json.dumps(ends)


def _of_query(query: Any) -> Iterator[dict[str, Any]]:
    progress = query.lastProgress
    if progress is None:
        raise InvalidConfig("the stream has had no batch yet; ask again when query.lastProgress is not None")
    for source in progress["sources"]:
        with contextlib.suppress(ValueError, SyntaxError, AttributeError, InvalidConfig):  # of another format
            yield to_json(from_json(_offset(source["endOffset"])))


def _offset(text: str) -> Any:
    """Parse an offset from a query's progress; before PySpark 4.2 it is written as a Python dict."""
    try:
        return json.loads(text)
    except ValueError:
        return ast.literal_eval(text)


def _of_frame(frame: Any) -> Iterator[dict[str, Any]]:
    """Yield what each read of a topic has planned; Spark keeps plans, so this does not plan again."""
    spark = installed_spark()
    if spark is not None and spark < KEEPS_PLANS_FROM:
        raise InvalidConfig(
            f"Spark {spark[0]}.{spark[1]} plans a read again for each action, so it has no single end: install"
            " pyspark 4.1 or newer, or set endingOffsets"
        )
    plan = getattr(frame, "_jdf", None)
    if plan is None:
        raise InvalidConfig(
            "end_of needs the plan, which Spark Connect does not give; read columns __topic and __messageId, and take"
            " the highest of each topic"
        )
    leaves = plan.queryExecution().optimizedPlan().collectLeaves()
    for index in range(leaves.size()):
        leaf = leaves.apply(index)
        if leaf.getClass().getSimpleName() != _RELATION or leaf.relation().table().name() not in FORMATS:
            continue
        for partition in leaf.scan().toBatch().planInputPartitions():
            part = pickle.loads(bytes(partition.pickedPartition()))  # noqa: S301  created by our own worker
            if isinstance(part, ReadEnd) and part.ends is not None:
                yield json.loads(part.ends)
