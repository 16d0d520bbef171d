"""Every connector carries hostile values exactly, or they cost one record each, which is named with its reason."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from magnetar.api.connector import BatchSource, DeadLetter, Record, RecordRefused
from magnetar.connectors.register import BUILT_IN, find
from magnetar.instance.publish_request import MESSAGE_BYTES_MAX

from tests.connectors.direct import Direct, DirectContext
from tests.connectors.hostile import sinks, sources
from tests.connectors.hostile.sinks import SinkLane
from tests.connectors.hostile.sources import SourceLane
from tests.connectors.hostile.table import HOSTILE, OVERSIZED, Hostile, good
from tests.connectors.targets import Targets
from tests.support.waiting import wait_for

pytestmark = pytest.mark.connectors


@pytest.fixture(scope="module")
def targets() -> Iterator[Targets]:
    targets = Targets()
    yield targets
    targets.close()


def by_server(lanes: tuple[type[Any], ...]) -> list[type[Any]]:
    """Return lanes, those of one server beside each other, so that it is started once."""
    return sorted(lanes, key=lambda lane: lane.server.__name__ if lane.server else "")


def record_of(hostile: Hostile) -> Record:
    return Record(
        hostile.payload, f"key-{hostile.number}", {"number": str(hostile.number)}, 1_700_000_000_000,
        topic="persistent://public/default/in", message_id=f"1:{hostile.number}:0", sequence=hostile.number,
    )  # fmt: skip


def write_all(sink: Direct, records: list[Record]) -> dict[str, str]:
    """Write records as an instance does, and return the reasons for those that are refused, by their message ids."""
    refused: dict[str, str] = {}
    while records:
        try:
            sink.write(records)
        except RecordRefused as error:
            refused[records[error.index].message_id] = str(error)
            records = [*records[error.written : error.index], *records[error.index + 1 :]]
        else:
            break
    return refused


@pytest.mark.parametrize("lane_type", by_server(sinks.LANES))
def test_sink_carries_hostile_values_or_refuses_them_alone(
    lane_type: type[SinkLane], targets: Targets, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lane = lane_type(targets.get(lane_type), tmp_path)
    lane.prepare()
    sink = Direct(find("sink", lane.connector)(), lane.configs(), DirectContext())
    goods = [Hostile("good", 1000 + number, good(1000 + number)) for number in range(len(HOSTILE) + 1)]
    records = [record_of(goods[0])]
    for hostile, following in zip(HOSTILE, goods[1:], strict=True):
        records += [record_of(hostile), record_of(following)]
    with caplog.at_level("INFO", "connector"):
        reasons = write_all(sink, records)
        sink.close()
    lane.log_records = caplog.records
    names = {f"1:{hostile.number}:0": hostile.name for hostile in HOSTILE}
    refused = {names.get(message_id, message_id): reason for message_id, reason in reasons.items()}
    stored = list(lane.stored())
    missing = [one.number for one in goods if lane.carried(one) not in stored]
    assert not missing
    wanted = [one for one in HOSTILE if one.name not in refused and one.name not in lane.ignored]
    others = [one.name for one in wanted if lane.carried(one) not in stored]
    assert not others, [str(one)[:100] for one in stored if one not in list(map(lane.carried, goods))]
    assert {name: reason[:100] for name, reason in refused.items() if name not in lane.refused} == {}
    assert lane.refused.keys() <= refused.keys()
    for name, reason in refused.items():
        assert lane.refused[name].lower() in reason.lower()
        assert "\n" not in reason
    assert len(stored) == len(goods) + len(wanted)
    lane.close()


class Reading:
    """A source at work, and what has come of it."""

    def __init__(self, lane: SourceLane) -> None:
        self.lane = lane
        self.direct = Direct(find("source", lane.connector)(), lane.configs(), DirectContext())
        self.carried: list[object] = []
        self.reasons: list[str] = []
        self._records = self._of_tasks() if isinstance(self.direct.connector, BatchSource) else self._read()

    def _read(self) -> Iterator[list[Record]]:
        while True:
            yield list(self.direct.call(self.direct.connector.read) or ())

    def _of_tasks(self) -> Iterator[list[Record]]:
        while True:
            for task in self.direct.call(self.direct.connector.discover):
                self.direct.call(self.direct.connector.prepare, task)
                while records := self.direct.call(self.direct.connector.read):
                    yield list(records)
            yield []

    def go_on(self) -> int:
        """Read once as an instance does, and return how many values have come or were answered."""
        records = next(self._records)
        for record in records:
            reason = _reason(record)
            if reason:
                self.reasons.append(reason)
            else:
                self.carried.append(self.lane.found(record))
        self.direct.acknowledge(records)
        return len(self.carried) + len(self.reasons) + len(self.lane.answers)


def _reason(record: Record) -> str:
    """Return why an instance makes a dead letter of a record; empty if it does not."""
    if isinstance(record, DeadLetter):
        return record.reason
    try:
        size = len(record.value.encode() if isinstance(record.value, str) else record.value)
    except UnicodeEncodeError as error:
        return str(error)
    return f"{size} bytes exceeds the message size limit of {MESSAGE_BYTES_MAX}" if size > MESSAGE_BYTES_MAX else ""


@pytest.mark.parametrize("lane_type", by_server(sources.LANES))
def test_source_carries_hostile_values_or_makes_dead_letters_of_them(
    lane_type: type[SourceLane], targets: Targets, tmp_path: Path
) -> None:
    lane = lane_type(targets.get(lane_type), tmp_path)
    lane.prepare()
    hostile = [*HOSTILE, OVERSIZED] if lane.takes_oversized else HOSTILE
    hostile = [one for one in hostile if one.name not in lane.absent]
    goods = [Hostile("good", 1000 + number, good(1000 + number)) for number in range(len(hostile) + 1)]
    values = [goods[0], *(one for pair in zip(hostile, goods[1:], strict=True) for one in pair)]
    reading = Reading(lane)
    reading.go_on()
    with ThreadPoolExecutor(1) as feeder:
        feeding = feeder.submit(lane.put_hostile, values)
        wait_for(lambda: reading.go_on() >= len(values), f"{len(values)} values", 90)
        feeding.result()
    reading.direct.close()
    assert [one.number for one in goods if lane.carried(one) not in reading.carried] == []
    wanted = [one for one in hostile if one.name not in lane.refused]
    assert [one.name for one in wanted if lane.carried(one) not in reading.carried] == []
    assert len(reading.carried) == len(goods) + len(wanted)
    if lane.answers:
        assert lane.answers.keys() == lane.refused.keys()
        assert [name for name, part in lane.refused.items() if part not in lane.answers[name]] == []
    else:
        assert len(reading.reasons) == len(lane.refused)
        assert [part for part in lane.refused.values() if not any(part in reason for reason in reading.reasons)] == []
    lane.close()


@pytest.mark.parametrize(("kind", "module"), [("sink", sinks), ("source", sources)])
def test_every_connector_has_a_lane(kind: str, module: Any) -> None:
    having = {getattr(find(kind, lane.connector), "__name__", "") for lane in module.LANES}
    names = [name for name, built in BUILT_IN.items() if getattr(built, kind)]
    assert {name for name in names if find(kind, name).__name__ not in having} == module.NO_LANE.keys()
