"""How the batches of a stream are cut into tasks: a batch that is run again is cut alike. No JVM is needed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import pytest
from magnetar.errors import InvalidConfig
from magnetar.spark.source.offsets import read_offsets
from magnetar.spark.source.ranges import Span, TopicRange
from magnetar.spark.source.streaming.options import stream_options
from magnetar.spark.source.streaming.places import Cut, Place, Places, cut_of, from_json, to_json, with_cut
from magnetar.spark.source.streaming.reader import TopicStreamReader
from magnetar.wire.topic_name import parse_topic_name

pytestmark = pytest.mark.spark
TOPIC = "persistent://public/default/orders"
START: dict[str, Any] = {TOPIC: "5:0"}


class Topic:
    """Stands in for the stream: a topic of one ledger."""

    def __init__(self, entries: int) -> None:
        self._entries = entries

    def latest(self, start: Places, limits: object) -> Places:
        return {TOPIC: Place(5, self._entries)}

    def ranges(self, start: Places, end: Places) -> list[TopicRange]:
        return [TopicRange(TOPIC, (Span(5, start[TOPIC].entry_id, end[TOPIC].entry_id - 1),))]


def reader(**options: str) -> TopicStreamReader:
    it = TopicStreamReader(stream_options({"service.url": "pulsar://h", "topic": TOPIC, **options}))
    it._made = cast(Any, Topic(1000))
    return it


def tasks(it: TopicStreamReader, end: Mapping[str, Any]) -> list[str]:
    return [str(cast(Any, part).wanted) for part in it.partitions(START, json.loads(json.dumps(end)))]


@pytest.mark.parametrize("before", ["1", "3", "50", ""])
@pytest.mark.parametrize("after", ["1", "7", ""])
def test_a_batch_is_cut_alike_after_a_restart_with_other_options_or_cores(
    monkeypatch: pytest.MonkeyPatch, before: str, after: str
) -> None:
    first, second = (reader(**({"minPartitions": number} if number else {})) for number in (before, after))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    end = first.latestOffset(START)
    planned = tasks(first, end)
    assert len(planned) == int(before or 4)
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    assert tasks(second, end) == planned


def test_a_batch_of_an_older_checkpoint_is_cut_by_the_options() -> None:
    assert len(tasks(reader(minPartitions="3"), {TOPIC: "5:1000"})) == 3


def test_nothing_new_is_the_same_text_however_the_batch_before_was_cut() -> None:
    before = {TOPIC: "5:1000"}
    for start in (before, with_cut(before, Cut(9, 100))):
        assert json.dumps(reader(minPartitions="3").latestOffset(start)) == json.dumps(start)


def test_places_and_cut_come_back_from_a_checkpoint() -> None:
    places = {TOPIC: Place(5, 3)}
    record = json.loads(json.dumps(with_cut(to_json(places), Cut(4, 100))))
    assert (from_json(record), cut_of(record)) == (places, Cut(4, 100))
    assert cut_of(to_json(places)) is None


def test_a_topic_may_be_called_like_the_entry_for_the_cut() -> None:
    name = parse_topic_name("minPartitions")
    places = {name.partition_name(0).text: Place(5, 3)}
    assert from_json({"minPartitions": {"0": "5:3"}}) == places
    assert cut_of({"minPartitions": {"0": "5:3"}}) is None


def test_offsets_of_a_progress_are_taken_as_starting_offsets() -> None:
    text = json.dumps(with_cut({TOPIC: "5:3"}, Cut(4)))
    found = read_offsets("startingOffsets", text, (parse_topic_name(TOPIC),))
    assert list(found.by_topic) == [TOPIC]
    with pytest.raises(
        InvalidConfig, match="names persistent://public/default/minPartitions, which is not one of the topics read"
    ):
        read_offsets("startingOffsets", '{"minPartitions": "5:3"}', (parse_topic_name(TOPIC),))
