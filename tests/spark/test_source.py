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

    with pytest.raises(InvalidConfig, match=r"columns of a topic are fixed: value, __topic; omit \.schema\(…\)"):
        source.reader(StructType().add("value", IntegerType()))
    source.reader(StructType().add("value", BinaryType()).add("__topic", StringType(), nullable=True))


def test_a_stream_and_a_batch_refuse_what_is_for_the_other() -> None:
    from magnetar.spark.source.source import MagnetarSource

    plain = {"service.url": "pulsar://localhost:6650", "topic": "in"}
    batch = MagnetarSource({**plain, "maxOffsetsPerTrigger": "5"})
    with pytest.raises(InvalidConfig, match=r"'maxOffsetsPerTrigger' is only for streams: omit it or use spark\.read"):
        batch.reader(batch.schema())
    stream = MagnetarSource({**plain, "endingTimestamp": "5"})
    with pytest.raises(InvalidConfig, match=r"'endingTimestamp' is not supported by streams, which have no end"):
        stream.streamReader(stream.schema())


def test_the_source_has_a_second_name() -> None:
    from magnetar.spark.source.source import MagnetarSource, PulsarSource

    assert (MagnetarSource.name(), PulsarSource.name()) == ("magnetar", "pulsar")
