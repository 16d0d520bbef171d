"""What compaction keeps, against a naive model: random keys, batches and deletions, several compactions, restarts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest
from magnetar.broker.storage import EARLIEST, Position, Storage, StorageConfig, StoredEntry, TopicLog
from magnetar.broker.storage.compacted_view import COMPACTION_CURSOR, CompactedReading
from magnetar.broker.storage.hidden_logs import HIDDEN
from magnetar.broker.topics.compaction import compact
from magnetar.broker.topics.compaction_rules import Latest, TooManyKeys, last_batch_index
from magnetar.errors import NotAllowed, StorageError
from magnetar.testing.simulated_disk import SimulatedCrash, SimulatedDisk
from magnetar.wire.batch import decode_batch, encode_batch
from magnetar.wire.compression import compress, decompress
from magnetar.wire.message_properties import KEPT_TOMBSTONE
from magnetar.wire.payload import open_payload, seal
from magnetar.wire.pulsar_api_pb2 import LZ4, NONE, EncryptionKeys, KeyValue, MessageMetadata, SingleMessageMetadata

from tests.support.stepper import step_by_hand

T = TypeVar("T")
LOG = "persistent://public/default/compacted"
MAX_BYTES = 5 * 1024 * 1024
SMALL = StorageConfig(
    journal_file_bytes=64 * 1024,
    max_ledger_entries=7,
    tail_cache_bytes=4 * 1024,
    read_cache_bytes=4 * 1024,
)
SEEDS = 12
CRASH_SEEDS = 60


class Said(NamedTuple):
    """One message as the test sent it; ``key`` is None for one that nobody may look into."""

    number: int
    key: str | None
    value: bytes
    removes: bool = False


Entries = list[tuple[Position, list[Said]]]


def plain(key: str, value: bytes, **fields: Any) -> bytes:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, **fields)
    if key:
        metadata.partition_key = key
    return seal(metadata, value)


def batch(messages: Iterable[tuple[str, bytes]], *, compression: int = NONE, is_encrypted: bool = False) -> bytes:
    said = [(SingleMessageMetadata(partition_key=key) if key else None, value) for key, value in messages]
    body = encode_batch(said)
    metadata = MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=1, num_messages_in_batch=len(said), uncompressed_size=len(body)
    )
    metadata.compression = compression  # type: ignore[assignment]  # the protocol's number itself
    if is_encrypted:
        metadata.encryption_keys.append(EncryptionKeys(key="k", value=b"v"))
        return seal(metadata, b"nobody can read this")
    return seal(metadata, compress(compression, body))


def shown(entry: StoredEntry) -> tuple[Position, list[Said]]:
    """An entry as a client sees it: without the messages that compaction took out."""
    metadata, offset = open_payload(entry.payload)
    body = entry.payload[offset:]
    if metadata.encryption_keys:
        return entry.position, [Said(0, None, body)]
    if not metadata.HasField("num_messages_in_batch"):
        return entry.position, [Said(0, metadata.partition_key, body)]
    opened = decompress(metadata.compression, body, metadata.uncompressed_size, MAX_BYTES)
    payloads, heads = decode_batch(opened, metadata.num_messages_in_batch)
    pairs = enumerate(zip(payloads, heads, strict=True))
    return entry.position, [Said(i, head.partition_key, data) for i, (data, head) in pairs if not head.compacted_out]


def model_of(entries: Entries, horizon: Position) -> Entries:
    """What a compacted reader is to see: up to the horizon the last of each key, all behind it."""
    last: dict[str, tuple[Position, int]] = {}
    for position, messages in entries:
        for said in messages:
            if position <= horizon and said.key:
                last[said.key] = (position, said.number)
                if said.removes:
                    del last[said.key]
    wanted = set(last.values())
    seen = []
    for position, messages in entries:
        left = [
            said._replace(removes=False)
            for said in messages
            if position > horizon or said.key is None or (position, said.number) in wanted
        ]
        if left:
            seen.append((position, left))
    return seen


class Writer:
    """Makes random entries."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._serial = 0

    def _message(self) -> tuple[str, bytes]:
        self._serial += 1
        key = "" if self._rng.random() < 0.1 else f"k{self._rng.randrange(12)}"
        return key, b"" if self._rng.random() < 0.2 else b"v%d" % self._serial

    def entry(self) -> tuple[bytes, list[Said]]:
        kind = self._rng.random()
        if kind < 0.05:
            return batch([("x", b"x")] * 2, is_encrypted=True), [Said(0, None, b"nobody can read this")]
        if kind < 0.5:
            key, value = self._message()
            sizes = {} if self._rng.random() < 0.5 else {"uncompressed_size": len(value)}
            return plain(key, value, **sizes), [Said(0, key, value, removes=not value)]
        messages = [self._message() for _ in range(self._rng.randint(1, 6))]
        said = [Said(index, key, value, not value) for index, (key, value) in enumerate(messages)]
        return batch(messages, compression=self._rng.choice((NONE, LZ4))), said


@pytest.mark.parametrize(
    ("payload", "removes"),
    [
        (plain("k", b""), True),  # as C++, Go and Python clients send it
        (plain("k", b"", uncompressed_size=0), True),  # as Java clients send it
        (plain("k", b"", null_value=True), True),
        (plain("k", b"ciphertext", null_value=True), True),
        (plain("k", b"ciphertext", uncompressed_size=0), True),
        (plain("k", b"value"), False),
        (plain("k", b"value", uncompressed_size=5), False),
        (plain("k", b"", properties=[KeyValue(key=KEPT_TOMBSTONE, value="true")]), False),
        (plain("k", b"", properties=[KeyValue(key="other", value=KEPT_TOMBSTONE)]), True),
        (batch([("k", b"")]), True),
        (batch([("k", b"value")]), False),
    ],
)
def test_a_message_removes_its_key_if_it_is_empty_or_has_no_value(payload: bytes, removes: bool) -> None:
    latest = Latest(0, 1, 10, MAX_BYTES)
    latest.feed([plain("k", b"before"), payload])
    assert len(latest.survivors()) == (0 if removes else 1)


async def append(log: TopicLog, payload: bytes) -> Position:
    stored: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
    log.append(payload, 1, 1, lambda position, _: stored.set_result(position))
    return await stored


async def read_all(source: TopicLog | CompactedReading) -> Entries:
    found: Entries = []
    start = EARLIEST
    while entries := await source.load(start, 5, 10_000):
        found += map(shown, entries)
        start = Position(entries[-1].position.ledger_id, entries[-1].position.entry_id + 1)
    return found


def attached(directory: Path) -> Storage:
    storage = Storage.open(directory, SMALL)
    storage.attach(asyncio.get_running_loop())
    return storage


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_the_view_is_what_the_model_says_over_compactions_trims_and_restarts(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    writer = Writer(rng)
    entries: Entries = []
    horizon = EARLIEST
    storage = attached(tmp_path)
    try:
        for _ in range(6):
            log = storage.open_log(LOG)
            for _ in range(rng.randint(0, 25)):
                payload, said = writer.entry()
                entries.append((await append(log, payload), said))
            if rng.random() < 0.8:
                done = await compact(log, MAX_BYTES, max_keys=rng.choice((2, 5, 1000)))
                horizon = done.horizon or horizon
                assert not entries or horizon == log.last_confirmed
            if COMPACTION_CURSOR in log.cursors and rng.random() < 0.5:
                await log.trim(0, 0)
            expected = model_of(entries, horizon)
            assert await read_all(CompactedReading(log)) == expected
            for start in rng.sample([position for position, _ in entries], min(len(entries), 5)):
                from_there = await CompactedReading(log).load(start, 1, 1)
                assert [shown(each) for each in from_there] == [each for each in expected if each[0] >= start][:1]
            if rng.random() < 0.5:
                await storage.close()
                storage = attached(tmp_path)
        hidden = [name for name in storage._core.logs if name.startswith(HIDDEN)]
        assert len(hidden) <= 1, "old views are removed"
        assert storage.log_names() in ([], [LOG])
    finally:
        await storage.close()


async def test_what_is_not_compacted_yet_is_kept_and_the_rest_may_go(tmp_path: Path) -> None:
    storage = attached(tmp_path)
    log = storage.open_log(LOG)
    for number in range(20):
        await append(log, plain(f"k{number % 2}", b"%d" % number))
    await compact(log, MAX_BYTES)
    compacted = log.last_confirmed
    for number in range(20, 30):
        await append(log, plain(f"k{number % 2}", b"%d" % number))
    log.close_ledger()
    await log.trim(0, 0)
    kept = [said.value for _, messages in await read_all(log) for said in messages]
    assert kept[-10:] == [b"%d" % number for number in range(20, 30)]
    assert len(kept) < 20
    assert log.cursors[COMPACTION_CURSOR].mark_delete == compacted
    seen = [said.value for _, messages in await read_all(CompactedReading(log)) for said in messages]
    assert seen == [b"18", b"19", *(b"%d" % number for number in range(20, 30))]
    await storage.close()


async def test_a_message_in_chunks_stays_whole_or_goes_whole(tmp_path: Path) -> None:
    def chunk(uuid: str, number: int, value: bytes) -> bytes:
        metadata = MessageMetadata(
            producer_name="p", sequence_id=1, publish_time=1, partition_key="big", uuid=uuid, chunk_id=number,
            num_chunks_from_msg=2,
        )  # fmt: skip
        return seal(metadata, value)

    storage = attached(tmp_path)
    log = storage.open_log(LOG)
    for payload in (chunk("a", 0, b"a0"), chunk("a", 1, b"a1"), chunk("b", 0, b"b0"), plain("k", b"v"),
                    chunk("b", 1, b"b1"), chunk("c", 0, b"c0")):  # fmt: skip
        await append(log, payload)
    await compact(log, MAX_BYTES)
    seen = [said.value for _, messages in await read_all(CompactedReading(log)) for said in messages]
    assert seen == [b"b0", b"v", b"b1", b"c0"], "of c the end may still come"
    await append(log, chunk("c", 1, b"c1"))
    await compact(log, MAX_BYTES)
    seen = [said.value for _, messages in await read_all(CompactedReading(log)) for said in messages]
    assert seen == [b"v", b"c0", b"c1"]
    await storage.close()


@pytest.mark.parametrize("keys", [["a", "b"], ["b"]], ids=["a value is kept", "nothing is kept"])
async def test_reader_waits_behind_a_view_that_ends_with_deletions(keys: list[str], tmp_path: Path) -> None:
    storage = attached(tmp_path)
    log = storage.open_log(LOG)
    for key in keys:
        await append(log, plain(key, b"v"))
    await append(log, plain("b", b"", uncompressed_size=0))
    await compact(log, MAX_BYTES)
    reading = CompactedReading(log)
    found = await read_all(reading)
    assert [said.key for _, messages in found for said in messages] == keys[:-1]
    behind = found[-1][0]._replace(entry_id=found[-1][0].entry_id + 1) if found else EARLIEST
    assert reading.read(behind, 5, 10_000) == []  # None would have the dispatcher load again at once, for ever
    if found:
        assert reading.read(EARLIEST, 5, 10_000) is None
    new = await append(log, plain("c", b"v"))
    assert [entry.position for entry in reading.read(behind, 5, 10_000) or ()] == [new]
    await compact(log, MAX_BYTES)
    assert reading.read(behind, 5, 10_000) is None  # another view
    assert [position for position, _ in await read_all(reading)] == [*(position for position, _ in found), new]
    await storage.close()


async def test_one_compaction_at_a_time_and_none_of_a_deleted_log(tmp_path: Path) -> None:
    storage = attached(tmp_path)
    log = storage.open_log(LOG)
    for number in range(40):
        await append(log, plain(f"k{number}", b"v"))
    first = asyncio.create_task(compact(log, MAX_BYTES))
    await asyncio.sleep(0)
    with pytest.raises(NotAllowed, match="already being compacted"):
        await compact(log, MAX_BYTES)
    await storage.delete_log(LOG)
    with pytest.raises(StorageError, match="deleted"):
        await first
    assert len(storage._core.logs) == 0
    await storage.close()


def test_memory_holds_no_more_keys_than_it_may() -> None:
    latest = Latest(0, 1, 3, MAX_BYTES)
    latest.feed([plain("a", b"1"), plain("b", b"1"), plain("c", b"1")])
    with pytest.raises(TooManyKeys, match="more than 3 keys"):
        latest.feed([plain("d", b"1")])


def test_the_last_message_of_a_compacted_batch_is_the_last_that_is_left() -> None:
    body = encode_batch([(None, b"a"), (None, b"b"), (SingleMessageMetadata(compacted_out=True), b"")])
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, num_messages_in_batch=3)
    assert last_batch_index(seal(metadata, body), MAX_BYTES) == 1
    assert last_batch_index(plain("k", b"v"), MAX_BYTES) == -1


# Crashes


class History:
    """One disk over several runs of a storage, each ended by a crash while it compacts."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = SimulatedDisk(seed)
        self.entries: Entries = []
        self.horizons = [EARLIEST]  # of the views that a crash may leave
        self._writer = Writer(self.rng)
        self._tasks: list[asyncio.Task[Any]] = []

    def open(self) -> Storage:
        return Storage.open("/data", SMALL, self.disk, lambda: 1000.0, self.rng)

    async def run(self) -> bool:
        """Write and compact until the machine stops; returns whether a compaction was under way."""
        storage = self.open()
        self._stepper = step_by_hand(storage, self.rng)
        log = storage.open_log(LOG)
        try:
            for _ in range(self.rng.randint(5, 40)):
                await self._write(log)
            self.disk.crash_at = self.disk.operations + self.rng.randint(1, 40)
            while True:
                self.horizons.append(log.last_confirmed)
                await self._run(compact(log, MAX_BYTES))
                del self.horizons[:-1]
                if self.rng.random() < 0.5:
                    storage._checkpoint.begin()
                if self.rng.random() < 0.5:
                    await self._run(log.trim(0, 0))
                await self._write(log)
        except SimulatedCrash:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._tasks.clear()
        return len(self.horizons) > 1

    async def _write(self, log: TopicLog) -> None:
        payload, self._said = self._writer.entry()
        self.entries.append((await self._run(append(log, payload)), self._said))

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Let the storage's lanes and the loop take turns until ``work`` has ended or the machine stops."""
        task = asyncio.ensure_future(work)
        self._tasks.append(task)
        while not task.done():
            self._stepper.step()
            await asyncio.sleep(0)
        return await task

    async def look(self) -> None:
        """Start once more and check what is there."""
        storage = self.open()
        step_by_hand(storage, self.rng)
        log = storage.open_log(LOG)
        found = await read_all(CompactedReading(log))
        # An entry may be on the disk though its receipt was never told.
        known = {position for position, _ in self.entries}
        self.entries += [(position, self._said) for position, _ in found if position not in known]
        assert found in [model_of(self.entries, horizon) for horizon in self.horizons]
        self.horizons = [log.view.horizon if log.view is not None else EARLIEST]
        hidden = [name for name in storage._core.logs if name.startswith(HIDDEN)]
        assert hidden == ([] if log.view is None else [log.view.log.name])
        files = {name for name in self.disk.list("/data/ledgers") if name.endswith(".ledger")}
        wanted = {f"{id_}.ledger" for each in storage._core.logs.used.values() for id_ in each.ledgers_by_id}
        assert files <= wanted, "nothing is left of what nobody refers to"
        storage.abandon()


async def one_history(seed: int) -> int:
    """Returns how many crashes came in the middle of a compaction."""
    history = History(seed)
    in_the_middle = 0
    for _ in range(3):
        in_the_middle += await history.run()
        history.disk.crash_at = None
        if history.rng.random() < 0.7:
            history.disk.power_failure()
        else:
            history.disk.kill_process()
        await history.look()
    return in_the_middle


@pytest.mark.slow
async def test_a_crash_leaves_the_old_view_or_the_new_one() -> None:
    in_the_middle = 0
    for seed in range(CRASH_SEEDS):
        try:
            in_the_middle += await one_history(seed)
        except BaseException as exc:
            exc.add_note(f"seed {seed}")
            raise
    assert in_the_middle > CRASH_SEEDS, "hardly any crash came in the middle of a compaction"
