"""What recovery takes for a torn tail, and what it refuses as damage."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import struct
from dataclasses import replace

import google_crc32c
import pytest
from magnetar.broker.storage import DamagedFile, DiskFailure, Position, Storage, StorageConfig, StoredEntry, TopicLog
from magnetar.broker.storage.disk.failures import UnknownLogs
from magnetar.broker.storage.journal import format as layout
from magnetar.broker.storage.journal.format import (
    ENTRY,
    ENTRY_FIELDS_BYTES,
    ENTRY_HEAD_BYTES,
    encode_change,
    encode_mark,
    pack_entry_head,
)
from magnetar.broker.storage.journal.journal import file_sequence
from magnetar.broker.storage.recovery.replay import SALVAGED
from magnetar.errors import DataDirectoryInUse, StorageError
from magnetar.testing.simulated_disk import Operation, SimulatedCrash, SimulatedDisk

from tests.support.stepper import load_now, step_by_hand

CONFIG = StorageConfig(journal_file_bytes=40 * 1024, group_bytes=64 * 1024)
LOG = "persistent://public/default/t"


def journal(disk: SimulatedDisk, payloads: list[bytes], config: StorageConfig = CONFIG) -> None:
    """Write one group for each payload, then stop without a checkpoint."""
    storage = Storage.open("/d", config, disk, lambda: 1.0, random.Random(5))
    stepper = step_by_hand(storage, random.Random(5))
    log = storage.open_log(LOG)
    for payload in payloads:
        log.append(payload, 1, 1, lambda _, error: None)
        stepper.run()
    storage.abandon()


def recovered(disk: SimulatedDisk, config: StorageConfig = CONFIG) -> list[bytes]:
    storage = Storage.open("/d", config, disk, lambda: 1.0, random.Random(6))
    log = storage.open_log(LOG)
    payloads: list[bytes] = []
    position = Position(-1, -1)
    while entries := load_now(log, position, 1000, 10**9):
        payloads += [entry.payload for entry in entries]
        position = log.next_position(entries[-1].position)
    storage.abandon()
    return payloads


def files(disk: SimulatedDisk) -> list[str]:
    """The journal's files, but for one that is prepared."""
    return [path for path in disk.paths() if path.endswith(".journal") and not is_prepared(disk, path)]


def is_prepared(disk: SimulatedDisk, path: str) -> bool:
    return layout.is_prepared(disk.content(path)[: layout.PAGE], file_sequence(path.rpartition("/")[2]) or 0)


def groups(disk: SimulatedDisk, path: str) -> list[tuple[int, int]]:
    """Offset and length (padding left out) of each group in a file, without what it held before it was recycled."""
    content, found, offset = disk.content(path), [], layout.PAGE
    header = layout.decode_file_header(content)
    assert header is not None
    while (group := layout.decode_group(content, offset, len(content))) is not None and group.file_id == header.file_id:
        found.append((offset, layout.GROUP_HEADER_BYTES + len(group.body)))
        offset = group.end
    return found


def damaged(disk: SimulatedDisk, path: str, content: bytes) -> SimulatedDisk:
    copy = disk.copy(1)
    copy.set_content(path, content)
    return copy


@pytest.mark.slow
@pytest.mark.parametrize("fill", [b"\0", None], ids=["zeros follow", "file ends"])
def test_journal_cut_at_any_byte_of_its_last_two_groups_recovers(fill: bytes | None) -> None:
    payloads = [b"one" * 100, b"two" * 500, b"three" * 250, b"four" * 40]
    disk = SimulatedDisk()
    journal(disk, payloads)
    (path,) = files(disk)
    content = disk.content(path)
    ends = [offset + length for offset, length in groups(disk, path)]
    for cut in range(groups(disk, path)[-2][0], ends[-1] + 1):
        rest = b"" if fill is None else fill * (len(content) - cut)
        whole = sum(end <= cut for end in ends)
        assert recovered(damaged(disk, path, content[:cut] + rest)) == payloads[:whole], f"cut at {cut}"


def test_pages_of_the_last_group_may_be_missing_in_any_combination() -> None:
    payloads = [b"a" * 3000, b"b" * 9000, bytes(range(256)) * 60]
    disk = SimulatedDisk()
    journal(disk, payloads)
    (path,) = files(disk)
    content = disk.content(path)
    offset, length = groups(disk, path)[-1]
    pages = range(offset, offset + length, layout.PAGE)
    assert len(pages) == 4
    for old in (b"\0", b"\xa7"):
        for lost in itertools.chain.from_iterable(itertools.combinations(pages, n) for n in range(1, 5)):
            torn = bytearray(content)
            for page in lost:
                torn[page : page + layout.PAGE] = old * layout.PAGE
            assert recovered(damaged(disk, path, bytes(torn))) == payloads[:2], f"lost {lost}"


def test_flipped_byte_in_an_earlier_group_is_refused_with_file_and_offset() -> None:
    disk = SimulatedDisk()
    journal(disk, [b"x" * 50, b"y" * 5000, b"z" * 10])
    (path,) = files(disk)
    content = disk.content(path)
    for offset, length in groups(disk, path)[:-1]:
        for place in [*range(offset, offset + 60), *range(offset + 60, offset + length, 97)]:
            flipped = bytearray(content)
            flipped[place] ^= 0x10
            with pytest.raises(DamagedFile) as refusal:
                recovered(damaged(disk, path, bytes(flipped)))
            assert (refusal.value.path, refusal.value.offset) == (path, offset)
            assert path in str(refusal.value)
            assert f"offset {offset}" in str(refusal.value)


def test_flipped_byte_in_the_last_group_cuts_it() -> None:
    disk = SimulatedDisk()
    journal(disk, [b"x" * 50, b"y" * 5000])
    (path,) = files(disk)
    offset, length = groups(disk, path)[-1]
    for place in range(offset, offset + length, 31):
        flipped = bytearray(disk.content(path))
        flipped[place] ^= 1
        assert recovered(damaged(disk, path, bytes(flipped))) == [b"x" * 50]


def test_last_group_of_a_file_is_an_earlier_one_when_the_next_file_was_begun() -> None:
    disk = SimulatedDisk()
    journal(disk, [b"%d" % number + bytes(9000) for number in range(8)])
    first, second, *_ = files(disk)
    offset, _ = groups(disk, first)[-1]
    flipped = bytearray(disk.content(first))
    flipped[offset + 40] ^= 1
    with pytest.raises(DamagedFile) as refusal:
        recovered(damaged(disk, first, bytes(flipped)))
    assert (refusal.value.path, refusal.value.offset) == (first, offset)
    for place in range(44):
        flipped = bytearray(disk.content(second))
        flipped[place] ^= 1
        with pytest.raises(DamagedFile) as refusal:
            recovered(damaged(disk, second, bytes(flipped)))
        assert refusal.value.path == second


def test_missing_journal_file_is_refused() -> None:
    disk = SimulatedDisk()
    journal(disk, [b"%d" % number + bytes(9000) for number in range(12)])
    paths = files(disk)
    assert len(paths) == 4
    for path in paths[:-1]:
        copy = disk.copy(1)
        copy.remove(path)
        with pytest.raises(DamagedFile, match="missing") as refusal:
            recovered(copy)
        assert refusal.value.path == path


def test_tail_that_was_cut_stays_cut_whatever_turns_up_in_it() -> None:
    disk = SimulatedDisk()
    journal(disk, [b"one", b"two" * 2000])
    (path,) = files(disk)
    whole = disk.content(path)
    offset, _ = groups(disk, path)[-1]
    disk.set_content(path, whole[: offset + layout.PAGE].ljust(len(whole), b"\0"))
    journal(disk, [b"three"])
    assert recovered(disk) == [b"one", b"three"]
    assert recovered(damaged(disk, path, whole)) == [b"one", b"three"]


def test_old_content_of_a_recycled_file_is_never_taken_for_new() -> None:
    disk = SimulatedDisk()
    storage = Storage.open("/d", CONFIG, disk, lambda: 1.0, random.Random(5))
    stepper = step_by_hand(storage, random.Random(5))
    log = storage.open_log(LOG)
    payloads = []
    recycled: list[str] = []
    disk.watch = lambda done: (
        recycled.append(done.path) if (done.kind, done.path[-8:]) == ("rename", ".journal") else None
    )
    for number in range(30):
        payloads.append(b"%d|" % number + bytes(4000))
        log.append(payloads[-1], 1, 1, lambda _, error: None)
        stepper.run()
        if number % 7 == 6:
            storage._checkpoint.begin()
            stepper.run()
    storage.abandon()
    assert recycled
    assert recovered(disk) == payloads
    newest = files(disk)[-1]
    last = groups(disk, newest)[-1]
    torn = bytearray(disk.content(newest))
    torn[last[0] + 20] ^= 1
    assert recovered(damaged(disk, newest, bytes(torn))) == payloads[:-1]


def test_journal_file_that_was_named_but_never_begun_is_begun_then() -> None:
    disk = SimulatedDisk()
    payloads = []
    for turn in range(3):
        storage = Storage.open("/d", CONFIG, disk, lambda: 1.0, random.Random(turn))
        stepper = step_by_hand(storage, random.Random(turn))
        log = storage.open_log(LOG)
        for number in range(30):
            payloads.append(b"%d %d|" % (turn, number) + bytes(4000))
            log.append(payloads[-1], 1, 1, lambda _, error: None)
            stepper.run()
            if number % 7 == 6:
                storage._checkpoint.begin()
                stepper.run()
        storage.abandon()
        newest = int(files(disk)[-1].rpartition("/")[2].split(".")[0])
        for old in (bytes(8192), disk.content(files(disk)[0])):
            copy = disk.copy(1)
            copy.set_content(f"/d/journal/{newest + 1:016d}.journal", old)
            assert recovered(copy) == payloads
        disk = copy
    assert recovered(disk) == payloads


@pytest.mark.parametrize("entries_before", [1, 2, 7, 8, 9])
def test_group_whose_sync_failed_is_durable_once_a_start_has_read_it(entries_before: int) -> None:
    """A kernel forgets that pages must be written when that fails, and goes on showing them."""
    kept = 0
    for seed in range(40):
        disk = SimulatedDisk(seed)
        storage = Storage.open("/d", CONFIG, disk, lambda: 1.0, random.Random(5))
        stepper = step_by_hand(storage, random.Random(5))
        log = storage.open_log(LOG)
        for number in range(entries_before):
            log.append(b"%d" % number, 1, 1, lambda _, error: None)
            stepper.run()

        def fail_sync(operation: Operation, disk: SimulatedDisk = disk) -> None:
            if operation.kind == "sync" and operation.path.endswith(".journal"):
                disk.failures[operation.number] = 5
                disk.watch = None

        disk.watch = fail_sync
        log.append(b"doubtful" * 1000, 1, 1, lambda _, error: None)
        with contextlib.suppress(DiskFailure):
            stepper.run()
        disk.kill_process()
        shown = recovered(disk)
        kept += b"doubtful" * 1000 in shown
        disk.power_failure()
        assert recovered(disk) == shown, f"seed {seed}"
    assert kept  # else nothing was tried


def test_payload_that_looks_like_groups_is_never_taken_for_them() -> None:
    """The worst a payload can do: valid groups of a high number at the pages of a file that was recycled."""
    for number in (2**40, 2**63):
        for encode in (old_group, new_group):
            disk = SimulatedDisk()
            config = StorageConfig(journal_file_bytes=40 * 1024, group_bytes=64 * 1024)
            storage = Storage.open("/d", config, disk, lambda: 1.0, random.Random(5))
            stepper = step_by_hand(storage, random.Random(5))
            log = storage.open_log(LOG)
            payload = bytes(layout.PAGE - layout.GROUP_HEADER_BYTES - ENTRY_HEAD_BYTES) + encode(number) * 4
            payloads = [b"begins the ledger", *[payload] * 6]
            for each in payloads:
                log.append(each, 1, 1, lambda _, error: None)
                stepper.run()
            storage.abandon()
            assert recovered(disk) == payloads
            old = disk.content(files(disk)[0])
            pages = range(3 * layout.PAGE, len(old), layout.PAGE)
            assert number in [found.number for at in pages if (found := layout.decode_group(old, at, len(old)))]
            # A crash while that file was begun anew: its header is torn.
            newest = int(files(disk)[-1].rpartition("/")[2].split(".")[0])
            disk.set_content(f"/d/journal/{newest + 1:016d}.journal", b"\xa7" * layout.PAGE + old[layout.PAGE :])
            assert recovered(disk) == payloads


def old_group(number: int) -> bytes:
    rest = struct.pack("<QQI", 7, number, 100)
    crc = int(google_crc32c.extend(google_crc32c.value((7).to_bytes(8, "little")), rest + bytes(100)))
    return (b"GRP1" + crc.to_bytes(4, "little") + rest).ljust(layout.PAGE, b"\0")


def new_group(number: int) -> bytes:
    return b"".join(layout.encode_group(layout.FileHeader(7, 1, 1, 1, bytes(16)), number, bytes(100)))


def test_header_that_is_lost_before_groups_of_its_file_is_refused() -> None:
    disk = SimulatedDisk()
    journal(disk, [b"one", b"two"])
    (path,) = files(disk)
    content = disk.content(path)
    second = groups(disk, path)[1][0]
    for lost in (layout.PAGE, second):  # with the first group, too
        with pytest.raises(DamagedFile, match="the file contains groups, but its header is unreadable"):
            recovered(damaged(disk, path, bytes(lost) + content[lost:]))


def prepared(disk: SimulatedDisk) -> str:
    """Write groups until the next file is prepared, and return its path."""
    journal(disk, [b"x" * 5000] * 4)
    (path,) = [path for path in disk.paths() if path.endswith(".journal") and is_prepared(disk, path)]
    return path


def begun_with(disk: SimulatedDisk, path: str, groups: int) -> tuple[bytes, bytes]:
    """Return header and groups of a prepared file as the next group's roll would write them."""
    sequence = file_sequence(path.rpartition("/")[2])
    before = [path for path in files(disk) if layout.decode_file_header(disk.content(path)) is not None][-1]
    offset, number = layout.PAGE, 0
    while (group := layout.decode_group(content := disk.content(before), offset, len(content))) is not None:
        offset, number = group.end, group.number
    key = json.loads(disk.content("/d/catalogue").splitlines()[1])["journal_key"]
    assert sequence is not None
    nonce = layout.nonce_of(bytes.fromhex(key), sequence, 77)
    header = layout.FileHeader(77, sequence, number + 1, offset, nonce)
    parts = [part for one in range(groups) for part in layout.encode_group(header, number + 1 + one, b"")]
    return layout.encode_file_header(header), b"".join(parts)


def test_next_file_is_prepared_and_begun_without_a_sync_of_its_own() -> None:
    disk = SimulatedDisk()
    storage = Storage.open("/d", CONFIG, disk, lambda: 1.0, random.Random(5))
    stepper = step_by_hand(storage, random.Random(5))
    log = storage.open_log(LOG)
    stepper.run()
    stored: list[Position] = []
    trace: list[str] = []
    for number in range(30):
        log.append(b"x" * 5000, 1, 1, lambda position, error: stored.append(position))
        disk.watch = lambda operation: trace.append(f"{operation.kind} {operation.path[-9:]}")
        stepper._write_once()
        disk.watch = None
        stepper.run()
        assert len(stored) == number + 1
        if number:  # the first group begins the first file
            assert [kind for kind, _ in map(str.split, trace)].count("sync") == 1
            assert not any(line.startswith(("sync_directory", "rename", "open")) for line in trace), trace
        trace.clear()
    assert len(files(disk)) > 5
    storage.abandon()
    assert len(recovered(disk)) == 30


def test_prepared_file_is_used_by_the_next_start() -> None:
    disk = SimulatedDisk()
    path = prepared(disk)
    assert recovered(disk) == [b"x" * 5000] * 4
    journal(disk, [b"more"])
    assert files(disk)[-1] == path
    assert layout.decode_file_header(disk.content(path)) is not None
    assert recovered(disk) == [b"x" * 5000] * 4 + [b"more"]


def test_first_group_whose_header_is_lost_in_a_prepared_file_was_in_flight() -> None:
    disk = SimulatedDisk()
    path = prepared(disk)
    header, group = begun_with(disk, path, 1)
    old = disk.content(path)
    for page, found in ((old[: layout.PAGE], group), (header, group), (header, b""), (old[: layout.PAGE], b"")):
        copy = damaged(disk, path, (page + found).ljust(len(old), b"\0"))
        assert recovered(copy) == [b"x" * 5000] * 4
        journal(copy, [b"more"])
        assert recovered(copy) == [b"x" * 5000] * 4 + [b"more"]


def test_second_group_in_a_file_that_claims_to_be_prepared_is_damage() -> None:
    disk = SimulatedDisk()
    path = prepared(disk)
    header, groups = begun_with(disk, path, 2)
    old = disk.content(path)
    assert recovered(damaged(disk, path, (header + groups).ljust(len(old), b"\0"))) == [b"x" * 5000] * 4
    with pytest.raises(DamagedFile, match="the file contains groups, but its header is unreadable"):
        recovered(damaged(disk, path, (old[: layout.PAGE] + groups).ljust(len(old), b"\0")))
    with pytest.raises(DamagedFile, match="the file contains groups, but its header is unreadable"):
        recovered(damaged(disk, path, (bytes(layout.PAGE) + groups[: layout.PAGE]).ljust(len(old), b"\0")))


def foreign(disk: SimulatedDisk, *records: bytes) -> None:
    """Write records to the journal that no call of the storage makes, as a mistake would."""
    storage = Storage.open("/d", CONFIG, disk, lambda: 1.0, random.Random(5))
    stepper = step_by_hand(storage, random.Random(5))
    storage._core.record(lambda _: None, *records)
    stepper.run()
    storage.abandon()


def begun(log: int, ledger: int, *payloads: bytes) -> list[bytes]:
    entries = [
        pack_entry_head(ENTRY, len(payload) + ENTRY_FIELDS_BYTES, ledger, number, 1, 1) + payload
        for number, payload in enumerate(payloads)
    ]
    return [encode_change({"do": "begin_ledger", "log": log, "ledger": ledger, "created_ms": 1}), *entries]


def opened(log: int, cursor: int, name: str) -> bytes:
    return encode_change(
        {"do": "open_cursor", "log": log, "cursor": cursor, "name": name, "mark": [-1, -1], "properties": {}}
    )


def test_records_of_a_log_that_never_was_are_refused_and_salvaged() -> None:
    disk = SimulatedDisk()
    journal(disk, [b"known"])
    acknowledged = encode_mark(41, Position(30, 0))
    foreign(disk, *begun(40, 30, b"one", b"two"), opened(40, 41, "sub"), acknowledged, *begun(50, 31, b"three"))
    (path, *_) = [path for path in files(disk) if groups(disk, path)][1:]
    for _ in range(2):
        with pytest.raises(UnknownLogs) as refusal:
            recovered(disk)
        text = str(refusal.value)
        assert "/d contains 7 records of 2 topics that were neither created nor deleted" in text
        assert f"log 40 with 5 records (2 entries, subscriptions 'sub') in {path} at offset 4096" in text
        assert "log 50 with 2 records (1 entries)" in text
        assert "--salvage" in text
    salvage = replace(CONFIG, salvage=True)
    storage = Storage.open("/d", salvage, disk, lambda: 1.0, random.Random(6))
    stepper = step_by_hand(storage, random.Random(6))
    assert sorted(storage.log_names()) == [f"{SALVAGED}40", f"{SALVAGED}50", LOG]
    assert storage.open_log("new").id > 50
    (entry,) = load_now(storage.open_log(f"{SALVAGED}40"), Position(30, 1), 10, 100)
    assert entry.payload == b"two"
    assert storage.open_log(f"{SALVAGED}40").cursors["sub"].mark_delete == Position(30, 0)
    storage.open_log(f"{SALVAGED}50").append(b"four", 1, 1, lambda _, error: None)
    stepper.run()
    storage.abandon()
    for config in (CONFIG, salvage):
        storage = Storage.open("/d", config, disk, lambda: 1.0, random.Random(7))
        log = storage.open_log(f"{SALVAGED}50")
        assert [entry.payload for entry in all_of(log)] == [b"three", b"four"]
        assert max(log.ledgers_by_id) > 31
        assert len(storage.log_names()) == 3
        storage.abandon()
    assert recovered(disk) == [b"known"]


def all_of(log: TopicLog) -> list[StoredEntry]:
    found, position = [], log.first_position
    while entries := load_now(log, position, 100, 1 << 20):
        found += entries
        position = log.next_position(entries[-1].position)
    return found


def test_records_of_a_log_that_was_deleted_or_created_later_are_no_reason_to_refuse() -> None:
    disk = SimulatedDisk()
    journal(disk, [b"known"])
    foreign(
        disk,
        *begun(40, 30, b"one"),
        encode_change({"do": "delete_log", "log": 40}),
        encode_change({"do": "terminate", "log": 40}),
        encode_change({"do": "delete_cursor", "log": 60, "cursor": 61}),
        encode_mark(62, Position(1, 0)),
        opened(70, 71, "pulsar.dedup"),
        *begun(80, 33, b"two"),
        encode_change({"do": "create_log", "log": 80, "name": "late"}),
    )
    assert recovered(disk) == [b"known"]
    storage = Storage.open("/d", CONFIG, disk, lambda: 1.0, random.Random(7))
    assert sorted(storage.log_names()) == ["late", LOG]
    assert [entry.payload for entry in all_of(storage.open_log("late"))] == [b"two"]
    assert storage.open_log("new").id > 80, "no id is used again that any record has"
    assert storage._core.ids.next_ledger > 33
    storage.abandon()


def test_entry_of_a_ledger_that_was_never_begun_is_damage() -> None:
    disk = SimulatedDisk()
    journal(disk, [b"known"])
    foreign(disk, begun(40, 30, b"one")[1])
    with pytest.raises(DamagedFile, match="entry 0 belongs to ledger 30, which was never created"):
        recovered(disk)


def test_damaged_or_missing_catalogue_is_refused() -> None:
    disk = SimulatedDisk()
    journal(disk, [b"one"])
    content = disk.content("/d/catalogue")
    for place in range(0, len(content), 3):
        flipped = bytearray(content)
        flipped[place] ^= 4
        with pytest.raises(DamagedFile, match="/d/catalogue is damaged at offset"):
            recovered(damaged(disk, "/d/catalogue", bytes(flipped)))
    disk.remove("/d/catalogue")
    with pytest.raises(StorageError, match="contains data but no catalogue: restore /d/catalogue"):
        recovered(disk)


def test_rest_of_an_interrupted_catalogue_does_no_harm() -> None:
    disk = SimulatedDisk()
    journal(disk, [b"one"])
    disk.set_content("/d/catalogue.new", b"x" * 5000)
    storage = Storage.open("/d", CONFIG, disk, lambda: 1.0, random.Random(5))
    stepper = step_by_hand(storage, random.Random(5))
    storage._checkpoint.begin()
    stepper.run()
    storage.abandon()
    assert recovered(disk) == [b"one"]


def test_damaged_block_of_a_ledger_is_named_and_the_rest_is_served() -> None:
    disk = SimulatedDisk()
    journal(disk, [b"one" * 10])
    storage = Storage.open("/d", StorageConfig(tail_cache_bytes=0), disk, lambda: 1.0, random.Random(5))
    stepper = step_by_hand(storage, random.Random(5))
    storage._checkpoint.begin()
    stepper.run()
    ledger = "/d/ledgers/1.ledger"
    flipped = bytearray(disk.content(ledger))
    flipped[60] ^= 1
    disk.set_content(ledger, bytes(flipped))
    with pytest.raises(DamagedFile, match="checksum mismatch") as refusal:
        load_now(storage.open_log(LOG), Position(1, 0), 10, 1000)
    assert (refusal.value.path, refusal.value.offset) == (ledger, 0)


def test_directory_in_use_is_refused_by_name() -> None:
    disk = SimulatedDisk()
    storage = Storage.open("/d", CONFIG, disk)
    with pytest.raises(DataDirectoryInUse, match="/d is in use by another simulated process: stop that broker"):
        Storage.open("/d", CONFIG, disk)
    storage.abandon()
    Storage.open("/d", CONFIG, disk).abandon()


def test_a_ledger_deleted_during_a_checkpoint_is_whole_when_a_crash_loses_the_deletion() -> None:
    found = [left_by_a_crash_around_a_checkpoint(seed) for seed in range(200)]
    everything = [b"%d" % number for number in range(7)]
    assert set(map(len, found)) == {1, 7}
    assert all(payloads == everything[-len(payloads) :] for payloads in found)


def left_by_a_crash_around_a_checkpoint(seed: int) -> list[bytes]:
    rng = random.Random(seed)
    disk = SimulatedDisk(seed)
    storage = Storage.open("/data", StorageConfig(journal_file_bytes=64 * 1024, max_ledger_entries=3), disk)
    stepper = step_by_hand(storage, rng)
    log = storage.open_log("t")
    for number in range(7):
        log.append(b"%d" % number, 1, 1, lambda *_: None)
    cursor = log.open_cursor("s", Position(-1, -1))
    stepper.run()
    cursor.acknowledge_up_to(log.last_confirmed, done=lambda _: None)
    stepper.run()
    storage._checkpoint.begin()
    for _ in range(rng.randint(0, 3)):
        stepper.step()
    log.trim_with(0, 0, lambda _: None)
    for _ in range(rng.randint(0, 5)):
        stepper.step()
    disk.power_failure()
    storage = Storage.open("/data", StorageConfig(journal_file_bytes=64 * 1024, max_ledger_entries=3), disk)
    step_by_hand(storage, rng)
    log = storage.open_log("t")
    found, position = [], log.first_position
    while entries := load_now(log, position, 100, 1 << 20):
        found += [entry.payload for entry in entries]
        position = log.next_position(entries[-1].position)
    storage.abandon()
    return found


def test_entries_of_a_checkpoint_whose_end_is_unknown_are_not_written_over() -> None:
    """Its catalogue may be in place although naming it could not be synced."""
    payloads = [b"%d|" % number + bytes(700) for number in range(40)]
    for seed in range(60):
        disk = SimulatedDisk(seed)
        storage = Storage.open("/d", StorageConfig(), disk, lambda: 1.0, random.Random(seed))
        stepper = step_by_hand(storage, random.Random(seed))
        log = storage.open_log(LOG)
        for payload in payloads[:10]:
            log.append(payload, 1, 1, lambda _, error: None)
        stepper.run()

        def fail_naming(operation: Operation, disk: SimulatedDisk = disk) -> None:
            if (operation.kind, operation.path) == ("sync_directory", "/d"):
                disk.failures[operation.number] = 5

        results: list[Exception | None] = []
        disk.watch = fail_naming
        storage._checkpoint.begin(results.append)
        stepper.run()
        assert isinstance(results[0], DiskFailure)
        for payload in payloads[10:]:
            log.append(payload, 1, 1, lambda _, error: None)
        stepper.run()

        def crash_in_ledger(operation: Operation, disk: SimulatedDisk = disk) -> None:
            if operation.kind == "sync" and operation.path.endswith(".ledger"):
                disk.crash_at = operation.number

        disk.watch = crash_in_ledger
        storage._checkpoint.begin()
        with pytest.raises(SimulatedCrash):
            stepper.run()
        disk.watch = None
        disk.power_failure()
        assert recovered(disk, StorageConfig()) == payloads, f"seed {seed}"
