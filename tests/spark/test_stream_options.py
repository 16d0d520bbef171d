"""What the options of a stream mean, and which are refused. PySpark, but no session."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import magnetar
import pytest
from magnetar.errors import InvalidConfig
from magnetar.spark.source import option_names
from magnetar.spark.source.option_names import STREAM_ONLY_OPTIONS
from magnetar.spark.source.options import read_options
from magnetar.spark.source.streaming import options as streaming_options
from magnetar.spark.source.streaming.admission import Limits
from magnetar.spark.source.streaming.options import StreamOptions, stream_options

pytestmark = pytest.mark.spark
URL = {"service.url": "pulsar://localhost:6650"}
IN = "persistent://public/default/in"


def options(**given: str) -> StreamOptions:
    return stream_options({**URL, "topic": "in", **given})


def test_a_stream_begins_at_the_end_unless_it_is_told() -> None:
    plain = options()
    assert plain.read.starting.everywhere == "latest"
    assert plain.limits == Limits(max_delay_s=900)
    assert plain.subscription == ""
    assert options(startingOffsets="earliest").read.starting.everywhere == "earliest"


def test_limits_are_those_of_kafka_and_pulsar() -> None:
    limits = options(
        maxOffsetsPerTrigger="100", minOffsetsPerTrigger="10", maxTriggerDelay="90s", maxBytesPerTrigger="1000000"
    ).limits
    assert limits == Limits(100, 1_000_000, 10, 90)
    for text, seconds in (("500ms", 0.5), ("15m", 900), ("2 h", 7200), ("250", 0.25)):
        assert options(minOffsetsPerTrigger="1", maxTriggerDelay=text).limits.max_delay_s == seconds


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "5"}, "exceeds maxOffsetsPerTrigger=5"),
        ({"maxTriggerDelay": "5s"}, "maxTriggerDelay requires minOffsetsPerTrigger: set both"),
        ({"minOffsetsPerTrigger": "5", "maxTriggerDelay": "soon"}, "'soon': expected a time such as 500ms"),
        ({"maxOffsetsPerTrigger": "0"}, "expected an integer of at least 1"),
        ({"endingOffsets": "latest"}, "'endingOffsets' is not supported by streams, which have no end"),
        ({"predefinedSubscription": ""}, "predefinedSubscription is empty"),
        ({"subscriptionPrefix": " "}, "subscriptionPrefix is empty"),
        ({"kafka.bootstrap.servers": "h:9092"}, "use service.url, for example"),
        ({"kafka.group.id": "g"}, "use predefinedSubscription"),
        ({"includeHeaders": "yes"}, "invalid includeHeaders 'yes': expected true or false"),
        (
            {"magnetar.client.keepAliveInterval": "1"},
            "is not passed to the client: expected one of magnetar.client.authPluginClassName",
        ),
        ({"startingOffsetsByTimestamp": "5"}, "expected JSON of topic -> milliseconds"),
        ({"startingOffsetsByTimestamp": '{"in": {"a": 1}}'}, "names partition 'a' of in: expected 0, 1"),
        ({"startingOffsetsByTimestamp": '{"in": {"0": "soon"}}'}, "'soon': expected milliseconds"),
        ({"startingOffsets": '{"in": {"0": "1"}}'}, "'1': expected earliest, latest"),
        ({"startingTimestamp": "1", "startingOffsets": "earliest"}, "both set where to begin"),
        ({"subscribe": "other"}, "exactly one of topic, topics and topicsPattern must be set"),
    ],
)
def test_a_wrong_stream_is_refused_with_the_remedy(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfig) as error:
        options(**given)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_positions_and_times_are_said_per_partition() -> None:
    starting = options(startingOffsets='{"in": {"0": "5:18", "1": "latest", "2": -2}}').read.starting
    assert [f"{starting.by_topic[f'{IN}-partition-{n}']}" for n in range(1)] == ["5:18:-1"]
    assert starting.by_topic[f"{IN}-partition-2"][:2] == (-1, -1)
    times = options(startingOffsetsByTimestamp='{"in": {"0": 5, "3": "7"}}').read.starting_times_ms
    assert times == {f"{IN}-partition-0": 5, f"{IN}-partition-3": 7}
    batch = read_options({**URL, "topic": "in", "endingOffsetsByTimestamp": '{"in": 9}'})
    assert batch.ending_times_ms == {IN: 9}


def test_the_names_of_kafka_are_taken_with_a_hint(caplog: pytest.LogCaptureFixture) -> None:
    option_names._say_ours.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert [name.text for name in stream_options({**URL, "subscribe": "in"}).read.topics] == [IN]
        assert stream_options({**URL, "subscribePattern": "in.*"}).read.pattern == "in.*"
        assigned = stream_options({**URL, "assign": '{"in": [1, 0]}'}).read.topics
    assert [name.text for name in assigned] == [f"{IN}-partition-1", f"{IN}-partition-0"]
    assert "option subscribe is an alias of topics; both are accepted" in caplog.text
    with pytest.raises(InvalidConfig, match=r"expected JSON of topic -> partitions"):
        stream_options({**URL, "assign": "in"})


@pytest.mark.parametrize("owner", ["magnetar", "pulsar"])
def test_settings_are_passed_to_clients_and_readers(owner: str) -> None:
    given = {
        f"{owner}.client.authPluginClassName": "token",
        f"{owner}.client.authParams": "file:///path",
        f"{owner}.client.connectionTimeoutMs": "2500",
        f"{owner}.client.operationTimeoutMs": "7000",
        f"{owner}.reader.receiverQueueSize": "10",
        f"{owner}.reader.subscriptionRolePrefix": "nightly",
    }
    read = options(**given).read
    assert (read.security.auth_plugin, read.security.auth_params) == ("token", "file:///path")
    assert read.timeouts == (2.5, 7.0)
    assert (read.ahead_messages, read.subscription_prefix) == (10, "nightly")


def test_a_secret_that_is_given_twice_is_not_shown() -> None:
    with pytest.raises(InvalidConfig) as error:
        options(**{"auth.plugin": "token", "auth.params": "hush", "pulsar.client.authParams": "hush"})
    assert "is set twice" in str(error.value)
    assert "hush" not in str(error.value)


def test_limits_are_refused_where_pyspark_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming_options, "has_read_limits", lambda: False)
    with pytest.raises(
        InvalidConfig,
        match=r"maxOffsetsPerTrigger requires pyspark 4\.2 or newer, but [\d.]+ is"
        r" installed",
    ):
        options(maxOffsetsPerTrigger="5")
    options()


def test_the_documentation_lists_every_option_of_streams() -> None:
    page = (Path(magnetar.__file__).parent / "docs" / "reference" / "spark.md").read_text()
    section = page.split("## Stream options")[1].split("\n## ")[0]
    assert tuple(re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)) == STREAM_ONLY_OPTIONS
