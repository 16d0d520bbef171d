"""Positions move with what is read when the parallelism of a source changes."""

from __future__ import annotations

import contextlib
import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from magnetar.api.connector import EndOfInput, Position
from magnetar.connectors import file_shares, file_source
from magnetar.connectors.file_shares import ReadBefore, Share, pruned
from magnetar.connectors.file_source import FileSource
from magnetar.connectors.generator_source import GeneratorSource
from magnetar.connectors.kafka_source import KafkaSource
from magnetar.instance.connectors.positions import Positions
from magnetar.state.client import Value

from tests.connectors.direct import Direct, DirectContext
from tests.connectors.file_reading import Reading, files, prepared, put

__all__ = ["files", "prepared"]


@pytest.fixture
def seed() -> int:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    return seed


def stored(position: Any) -> Any:
    return json.loads(json.dumps(position))


def divided(source: Any, positions: list[Any], count: int) -> list[Any]:
    return [stored(source.divide(positions, number, count)) for number in range(count)]


# -- kafka -------------------------------------------------------------------------------------------------------------


def kept(offsets: dict[str, int], topic_id: str = "t", **more: Any) -> dict[str, Any]:
    return {"topicId": topic_id, "offsets": offsets, "taken": {}, **more}


def test_kafka_instance_knows_the_offsets_of_all_instances_before() -> None:
    first = kept({"0": 5, "1": 90}, marks={"1": "a"})
    second = kept({"1": 100, "2": 8}, marks={"1": "a", "2": "b"})
    third = kept({"0": 7, "2": 3}, marks={"2": "c"})
    for position in divided(KafkaSource(), [first, None, second, third], 5):
        assert position["offsets"] == {"0": 7, "1": 100, "2": 3}  # of two marks the smaller offset
        assert {number: mark for number, mark in position["marks"].items() if mark} == {"1": "a", "2": "c"}
    assert divided(KafkaSource(), [None, None], 1) == [None]
    assert divided(KafkaSource(), [first, kept({"0": 9}, "of the topic before")], 1) == [None]
    (position,) = divided(KafkaSource(), [kept({"0": 9}, ""), first], 1)
    assert (position["topicId"], position["offsets"]["0"]) == ("t", 9)


def test_kafka_position_of_an_earlier_version_is_read() -> None:
    old = {"topicId": "t", "offsets": {"0": 5}, "taken": {"0": 4}}
    assert divided(KafkaSource(), [old], 1) == [old | {"marks": {}}]


# -- generator ---------------------------------------------------------------------------------------------------------


def made(number: int, count: int, position: Any, reads: int) -> tuple[list[int], Any]:
    """Let one instance read so often; return what it has made, and its position."""
    context = DirectContext(number, count, position=position)
    direct = Direct(GeneratorSource(), {"rate": 0, "count": 12_000, "fields": {"n": "sequence"}}, context)
    numbers: list[int] = []
    for _ in range(reads):
        with contextlib.suppress(EndOfInput):
            numbers += [json.loads(record.value)["n"] for record in direct.call(direct.connector.read)]
    return numbers, stored(direct.connector.snapshot()) if reads else position


def test_generator_makes_every_number_once_through_changes_of_parallelism(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr("magnetar.connectors.generator_source._BATCH_MAX", 97)
    found: Counter[int] = Counter()
    positions: list[Any] = [None]
    for count in (1, 3, 1, 2, 7, 2, *(rng.randint(1, 6) for _ in range(6)), 1):
        if count != len(positions):
            positions = divided(GeneratorSource(), positions, count)
        for number in range(count):
            numbers, positions[number] = made(number, count, positions[number], rng.randint(0, 4))
            found.update(numbers)
    numbers, _ = made(0, 1, positions[0], 1000)
    found.update(numbers)
    assert found == Counter(range(12_000))


def test_generator_takes_a_position_that_is_a_number() -> None:
    numbers, position = made(1, 3, 10, 1)
    assert numbers[:2] == [31, 34]
    assert position == 10 + len(numbers)


# -- positions in the state store --------------------------------------------------------------------------------------


class StoredPositions(Positions):
    """Reads positions from a dict."""

    def __init__(self, stored: dict[bytes, Any]) -> None:
        self.stored = stored
        self.reads = 0

    async def _values(self, keys: list[bytes]) -> list[Value | None]:
        self.reads += len(keys)
        return [Value(json.dumps(self.stored[key]).encode(), None, 1) if key in self.stored else None for key in keys]


def joined(positions: Sequence[Position], instance_id: int, parallelism: int) -> Position:
    """Return the names of a share, where a position is a list of them."""
    names = sorted(name for position in positions for name in cast(list[str], position or []))
    return list(names[instance_id::parallelism])


async def test_positions_of_epochs_in_which_none_was_kept_are_found_by_reading_each_epoch_once() -> None:
    names = [f"{number:02}" for number in range(20)]
    at = StoredPositions({b"__position__/0": {"position": names, "writer": "w"}, b"__position__/3/1": {"writer": "w"}})
    counts = [1, *([4, 5] * 10)]
    found = [await at._part(joined, counts, number) for number in range(5)]
    assert sorted(name for part in found for name in cast(list[str], part)) == names
    assert at.reads <= 5 * sum(counts)


async def test_position_that_was_kept_goes_before_those_of_earlier_epochs() -> None:
    at = StoredPositions(
        {
            b"__position__/0": {"position": ["a", "b", "c", "d"]}, b"__position__/1/1": {"position": ["b"]},
            b"__position__/2/0": {"writer": "w"},
        }
    )  # fmt: skip
    assert [await at._part(joined, [1, 2, 1, 2], number) for number in range(2)] == [["a", "c"], ["b"]]


# -- file --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("configs", [{"keepFile": True}, {"keepFile": False}, {"processedFileSuffix": ".done"}])
def test_every_file_is_read_once_through_changes_of_parallelism(
    files: Path, monkeypatch: pytest.MonkeyPatch, seed: int, configs: dict[str, Any]
) -> None:
    """With instances that lag, files that come meanwhile, and more files than a position holds."""
    rng = random.Random(seed)
    monkeypatch.setattr(file_source, "KEPT_MAX", 8)
    expected: Counter[bytes] = Counter()
    found: Counter[bytes] = Counter()
    positions: list[Any] = [None]
    for step, count in enumerate((2, 1, 3, 1, *(rng.randint(1, 5) for _ in range(5)), 1)):
        for number in range(rng.randint(5, 40)):
            expected.update(put(files / f"{step:02}-{number}", 2))
        if count != len(positions):
            positions = divided(FileSource(), positions, count)
        for number in range(count):
            reading = Reading(files, positions[number], (number, count), **configs)
            for _ in range(rng.choice((0, 3, 15, 200))):
                reading.source._looked_s = -1e9
                records = reading.source.read() or []
                found.update(record.value for record in records)
                for record in records:
                    if record.acknowledge is not None:
                        record.acknowledge()
            positions[number] = reading.close()
    found.update(Reading(files, positions[0], **configs).lines())
    assert found == expected


def test_positions_stay_small_through_many_changes(files: Path, seed: int) -> None:
    rng = random.Random(seed)
    times = [ReadBefore(Share(number := rng.randrange(8), 8), rng.randrange(1000)) for _ in range(200)]
    kept = pruned([*times, ReadBefore(Share(0, 2), 2000)])
    assert len(kept) <= 5
    for time in times:
        assert any(one.covers(time) for one in kept), (number, time)


def test_share_of_an_instance_is_found_by_inode() -> None:
    share = Share(1, 3)
    assert [share.has(inode) for inode in range(5)] == [False, True, False, False, True]
    assert file_shares.inode_of("7") == file_shares.inode_of("66:7") == file_shares.inode_of("7~ab") == 7
    assert Share(0, 2).meets(Share(1, 3))
    assert not Share(0, 2).meets(Share(1, 4))
