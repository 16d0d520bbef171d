"""What the data source refuses before anything is read or written. PySpark, but no session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from magnetar.errors import InvalidConfig

if TYPE_CHECKING:
    from magnetar.spark.source.source import MagnetarSource

pytestmark = pytest.mark.spark


@pytest.fixture
def source() -> MagnetarSource:
    from magnetar.spark.source.source import MagnetarSource

    return MagnetarSource({"service.url": "pulsar://localhost:6650", "topic": "in", "columns": "value,__topic"})


def test_the_columns_of_a_topic_cannot_be_declared(source: MagnetarSource) -> None:
    from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType

    with pytest.raises(InvalidConfig, match=r"columns of a topic are given: value, __topic; leave \.schema\(…\) out"):
        source.reader(StructType().add("value", IntegerType()))
    source.reader(StructType().add("value", BinaryType()).add("__topic", StringType(), nullable=True))


def test_streams_are_refused_with_what_there_is_instead(source: MagnetarSource) -> None:
    schema = source.schema()
    with pytest.raises(InvalidConfig, match=r"cannot be read as a stream yet; use spark\.read"):
        source.streamReader(schema)
    with pytest.raises(InvalidConfig, match="write each batch with foreachBatch"):
        source.streamWriter(schema, overwrite=False)
