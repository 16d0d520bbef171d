"""What the options of the data source mean, and which are refused. No Spark is needed."""

from __future__ import annotations

import re
from pathlib import Path

import magnetar
import pytest
from magnetar.errors import InvalidConfig
from magnetar.spark.source.option_names import READ_OPTIONS, STREAM_ONLY_WRITE_OPTIONS, WRITE_OPTIONS
from magnetar.spark.source.options import COLUMNS, read_options, write_options
from magnetar.spark.source.security_options import SECURITY_OPTIONS
from magnetar.wire.message_id import MessageId

URL = {"service.url": "pulsar://localhost:6650"}


def test_a_read_has_the_defaults_of_the_jvm_connector() -> None:
    options = read_options({**URL, "topic": "in"})
    assert [topic.text for topic in options.topics] == ["persistent://public/default/in"]
    assert options.starting.everywhere == "earliest"
    assert options.ending.everywhere == "latest"
    assert (options.fail_on_data_loss, options.poll_timeout_ms, options.min_partitions) == (True, 120_000, None)
    assert options.columns == COLUMNS


def test_names_of_options_have_any_case_and_load_names_the_topic() -> None:
    options = read_options(
        {"Service.URL": "pulsar://h", "PATH": "t/n/in", "minpartitions": "7", "FAILONDATALOSS": "False"}
    )
    assert options.topics[0].text == "persistent://t/n/in"
    assert (options.min_partitions, options.fail_on_data_loss) == (7, False)


def test_what_sql_tables_and_checkpoints_add_is_let_through() -> None:
    added = {"option.topic": "in", "owner": "me", "provider": "magnetar", "checkpointLocation": "/x"}
    assert read_options({**URL, **added, "topics": "a, b,a"}).topics[1].local == "b"


def test_positions_are_text_or_the_bytes_of_an_id() -> None:
    serialised = list(MessageId(300, 4, 1, 2, 3).serialize())
    signed = [byte - 256 if byte > 127 else byte for byte in serialised]
    text = f'{{"a": "3:4", "b-partition-1": {signed}}}'
    starting = read_options({**URL, "topics": "a,b", "startingOffsets": text}).starting
    assert starting.by_topic["persistent://public/default/a"] == MessageId(3, 4)
    assert starting.by_topic["persistent://public/default/b-partition-1"] == MessageId(300, 4, 1, 2, 3)
    assert "persistent://public/default/b-partition-0" not in starting.by_topic
    one = read_options({**URL, "topic": "a", "startingOffsets": "5:6:7"}).starting
    assert one.by_topic["persistent://public/default/a"] == MessageId(5, 6, batch_index=7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "exactly one of topic, topics and topicsPattern must be set, but none is set"),
        ({"topic": "a", "topics": "b"}, "topic and topics are set"),
        ({"topic": "a", "path": "b"}, "topic is set twice"),
        ({"topic": "a", "startingOffset": "earliest"}, "'startingOffset' is unknown; did you mean startingOffsets?"),
        ({"topic": "a", "zzz": "1"}, "option 'zzz' is unknown: expected one of service.url"),
        ({"topic": "a", "compression": "LZ4"}, "option 'compression' is not supported for reads: expected one of"),
        ({"topic": "a", "startingOffsets": '{"a":'}, """startingOffsets='{"a":' is not valid JSON: Expecting value"""),
        (
            {"topic": "a", "startingOffsets": "7:9", "endingOffsets": "7:8"},
            "startingOffsets 7:9 of persistent://public/default/a is after its endingOffsets 7:8",
        ),
        ({"topic": "a", "startingTime": "9", "endingTime": "8"}, "startingTime=9 is after endingTime=8"),
        ({"topic": "a", "startingOffsets": "latest"}, "would read nothing in a batch"),
        ({"topic": "a", "endingOffsets": "earliest"}, "would read nothing"),
        ({"topic": "a", "startingOffsets": "x"}, "invalid startingOffsets 'x'"),
        ({"topics": "a,b", "startingOffsets": "1:2"}, "neither earliest, latest nor JSON"),
        ({"topic": "a", "startingOffsets": '{"b": "1:2"}'}, "startingOffsets names persistent://public/default/b"),
        ({"topic": "a", "startingOffsets": '{"a": [1]}'}, "is not a serialized message id"),
        ({"topic": "a", "startingTime": "5", "startingOffsets": "earliest"}, "both set where to begin"),
        ({"topic": "a", "endingTime": "5", "endingOffsets": "latest"}, "both set where to end"),
        ({"topic": "a", "startingTime": "yesterday"},
            "invalid startingTime 'yesterday': expected an integer of at"
            " least 0"
        ),
        ({"topic": "a", "minPartitions": "0"}, "invalid minPartitions '0': expected an integer of at least 1"),
        ({"topic": "a", "failOnDataLoss": "maybe"}, "expected true or false"),
        ({"topic": "a", "columns": "value,__kei"}, "did you mean __key?"),
        ({"topic": "a", "columns": ","}, "option columns is empty"),
        ({"topic": "non-persistent://public/default/a"}, "stores no messages"),
        ({"topicsPattern": "a(", }, "not a regular expression"),
        ({"topicsPattern": "non-persistent://public/default/a.*"}, "must start with persistent://"),
    ],
)  # fmt: skip
def test_a_wrong_read_is_refused_with_the_remedy(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfig) as error:
        read_options({**URL, **options})
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_service_url_is_needed() -> None:
    with pytest.raises(InvalidConfig, match=r"option service\.url is required"):
        read_options({"topic": "a"})


def test_a_write_names_its_producers_anew_unless_it_is_told() -> None:
    assert write_options({**URL, "topic": "out"}, "id").name_prefix == "spark-id"
    options = write_options({**URL, "topic": "out", "producer.name.prefix": "daily", "compression": "zstd"}, "id")
    assert (options.name_prefix, options.compression) == ("daily", "ZSTD")
    assert options.topic == "persistent://public/default/out"
    assert write_options(URL, "id").topic is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "a", "effectivelyOnce": "true"}, "effectivelyOnce=true requires the options topic and admin.url"),
        ({"effectivelyOnce": "true", "admin.url": "http://h"}, "effectivelyOnce=true requires the options topic"),
        ({"topic": "a", "producer.name.prefix": " "}, "producer.name.prefix is empty"),
        (
            {"topic": "a", "compression": "gzip"},
            "invalid compression 'GZIP': expected one of NONE, LZ4, ZLIB, ZSTD, SNAPPY",
        ),
        ({"topic": "a", "minPartitions": "2"}, "option 'minPartitions' is not supported for writes"),
        (
            {"magnetar.producer.blockIfQueueFull": "true"},
            "is not passed to the client: expected one of magnetar.client.authPluginClassName",
        ),
        (
            {"magnetar.reader.receiverQueueSize": "5"},
            "option 'magnetar.reader.receiverQueueSize' is not supported for writes",
        ),
        ({"magnetar.producer.batchingMaxMessages": "0"}, "expected an integer of at least 1"),
    ],
)
def test_a_wrong_write_is_refused_with_the_remedy(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfig) as error:
        write_options({**URL, **options}, "id")
    assert message in str(error.value)


def test_writes_take_what_producers_of_pulsar_take() -> None:
    options = write_options(
        {
            **URL,
            "pulsar.producer.sendTimeoutMs": "7000",
            "magnetar.producer.compressionType": "LZ4",
            "magnetar.producer.batchingMaxMessages": "10",
            "magnetar.producer.batchingMaxBytes": "2000",
            "magnetar.producer.maxPendingMessages": "30",
            "magnetar.client.connectionTimeoutMs": "1500",
            "magnetar.client.operationTimeoutMs": "2500",
        },
        "id",
    )
    assert (options.send_timeout_ms, options.compression) == (7000, "LZ4")
    assert (options.entry_rows, options.entry_bytes, options.pending_messages) == (10, 2000, 30)
    assert options.timeouts == (1.5, 2.5)


def test_what_is_refused_for_a_write_names_what_is_passed_on_to_it() -> None:
    with pytest.raises(InvalidConfig) as error:
        write_options({**URL, "magnetar.producer.chunkingEnabled": "true"}, "id")
    assert "magnetar.producer.batchingMaxBytes" in str(error.value)
    assert "magnetar.reader." not in str(error.value)


@pytest.mark.parametrize(
    ("given", "columns"),
    [
        ({"includeHeaders": "true"}, COLUMNS),
        ({"includeHeaders": "false"}, COLUMNS[:-1]),
        ({"includeHeaders": "true", "columns": "value"}, ("value", "__messageProperties")),
        ({"includeHeaders": "false", "columns": "value"}, ("value",)),
        ({"columns": "value,__entryid,__LEDGERID"}, ("value", "__entryId", "__ledgerId")),
    ],
)
def test_headers_and_positions_are_columns_where_they_are_wanted(
    given: dict[str, str], columns: tuple[str, ...]
) -> None:
    assert read_options({**URL, "topic": "a", **given}).columns == columns


def test_headers_cannot_be_left_out_and_named() -> None:
    with pytest.raises(InvalidConfig, match="includeHeaders=false excludes __messageProperties, but option"):
        read_options({**URL, "topic": "a", "includeHeaders": "false", "columns": "value,__messageProperties"})
    with pytest.raises(InvalidConfig, match="includeHeaders=false with useTopicSchema requires option columns"):
        read_options({**URL, "topic": "a", "includeHeaders": "false", "useTopicSchema": "true"})


def test_the_documentation_lists_every_option() -> None:
    page = (Path(magnetar.__file__).parent / "docs" / "reference" / "spark.md").read_text()
    of_both = "## Credentials and TLS", SECURITY_OPTIONS
    for heading, names in (("## Read options", READ_OPTIONS), ("## Write options", WRITE_OPTIONS), of_both):
        section = page.split(heading)[1].split("\n## ")[0]
        own = [name for name in names if name not in SECURITY_OPTIONS or names is SECURITY_OPTIONS]
        assert re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE) == own
    sink = page.split("## Stream write options")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `([^`]+)` \|", sink, re.MULTILINE)) == {*STREAM_ONLY_WRITE_OPTIONS, "effectivelyOnce"}
    columns = page.split("## Columns")[1].split("\n## ")[0]
    assert tuple(re.findall(r"^\| `([^`]+)` \|", columns, re.MULTILINE)) == COLUMNS
