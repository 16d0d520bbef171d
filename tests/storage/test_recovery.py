"""What recovery takes for a torn tail, and what it refuses as damage."""

from __future__ import annotations

import itertools
import random

import pytest
from magnetar.broker.storage import DamagedFile, Position, Storage, StorageConfig
from magnetar.broker.storage import journal_format as layout
from magnetar.broker.storage.simulated_disk import SimulatedDisk
from magnetar.errors import DataDirectoryInUse, StorageError

CONFIG = StorageConfig(journal_file_bytes=40 * 1024, group_bytes=64 * 1024)
LOG = "persistent://public/default/t"


def journal(disk: SimulatedDisk, payloads: list[bytes], config: StorageConfig = CONFIG) -> None:
    """Write one group for each payload, then stop without a checkpoint."""
    storage = Storage.open("/d", config, disk, lambda: 1.0, random.Random(5))
    stepper = storage.step_by_hand(random.Random(5))
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
    while entries := log.load_now(position, 1000, 10**9):
        payloads += [entry.payload for entry in entries]
        position = log.next_position(entries[-1].position)
    storage.abandon()
    return payloads


def files(disk: SimulatedDisk) -> list[str]:
    return [path for path in disk.paths() if path.endswith(".journal")]


def groups(disk: SimulatedDisk, path: str) -> list[tuple[int, int]]:
    """Offset and length (padding left out) of each group in a file, without what it held before it was recycled."""
    content, found, offset = disk.content(path), [], layout.PAGE
    header = layout.decode_file_header(content)
    assert header is not None
    while (group := layout.decode_group(content, offset, len(content))) is not None and group[0] == header.file_id:
        found.append((offset, layout.GROUP_HEADER_BYTES + len(group[1].body)))
        offset = group[1].end
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
    stepper = storage.step_by_hand(random.Random(5))
    log = storage.open_log(LOG)
    payloads = []
    for number in range(30):
        payloads.append(b"%d|" % number + bytes(4000))
        log.append(payloads[-1], 1, 1, lambda _, error: None)
        stepper.run()
        if number % 7 == 6:
            storage.checkpoint()
            stepper.run()
    storage.abandon()
    assert disk.counts["rename"] > 6  # catalogues and recycled files
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
        stepper = storage.step_by_hand(random.Random(turn))
        log = storage.open_log(LOG)
        for number in range(30):
            payloads.append(b"%d %d|" % (turn, number) + bytes(4000))
            log.append(payloads[-1], 1, 1, lambda _, error: None)
            stepper.run()
            if number % 7 == 6:
                storage.checkpoint()
                stepper.run()
        storage.abandon()
        newest = int(files(disk)[-1].rpartition("/")[2].split(".")[0])
        for old in (bytes(8192), disk.content(files(disk)[0])):
            copy = disk.copy(1)
            copy.set_content(f"/d/journal/{newest + 1:016d}.journal", old)
            assert recovered(copy) == payloads
        disk = copy
    assert recovered(disk) == payloads


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
    with pytest.raises(StorageError, match="holds data but no catalogue; restore /d/catalogue"):
        recovered(disk)


def test_rest_of_an_interrupted_catalogue_does_no_harm() -> None:
    disk = SimulatedDisk()
    journal(disk, [b"one"])
    disk.set_content("/d/catalogue.new", b"x" * 5000)
    storage = Storage.open("/d", CONFIG, disk, lambda: 1.0, random.Random(5))
    stepper = storage.step_by_hand(random.Random(5))
    storage.checkpoint()
    stepper.run()
    storage.abandon()
    assert recovered(disk) == [b"one"]


def test_damaged_block_of_a_ledger_is_named_and_the_rest_is_served() -> None:
    disk = SimulatedDisk()
    journal(disk, [b"one" * 10])
    storage = Storage.open("/d", StorageConfig(tail_cache_bytes=0), disk, lambda: 1.0, random.Random(5))
    stepper = storage.step_by_hand(random.Random(5))
    storage.checkpoint()
    stepper.run()
    ledger = "/d/ledgers/1.ledger"
    flipped = bytearray(disk.content(ledger))
    flipped[60] ^= 1
    disk.set_content(ledger, bytes(flipped))
    with pytest.raises(DamagedFile, match="wrong checksum") as refusal:
        storage.open_log(LOG).load_now(Position(1, 0), 10, 1000)
    assert (refusal.value.path, refusal.value.offset) == (ledger, 0)


def test_directory_in_use_is_refused_by_name() -> None:
    disk = SimulatedDisk()
    storage = Storage.open("/d", CONFIG, disk)
    with pytest.raises(DataDirectoryInUse, match="/d is in use by another simulated process; stop that broker"):
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
    stepper = storage.step_by_hand(rng)
    log = storage.open_log("t")
    for number in range(7):
        log.append(b"%d" % number, 1, 1, lambda *_: None)
    cursor = log.open_cursor("s", Position(-1, -1))
    stepper.run()
    cursor.acknowledge_up_to(log.last_confirmed, done=lambda _: None)
    stepper.run()
    storage.checkpoint()
    for _ in range(rng.randint(0, 3)):
        stepper.step()
    log.trim_with(0, 0, lambda _: None)
    for _ in range(rng.randint(0, 5)):
        stepper.step()
    disk.power_failure()
    storage = Storage.open("/data", StorageConfig(journal_file_bytes=64 * 1024, max_ledger_entries=3), disk)
    storage.step_by_hand(rng)
    log = storage.open_log("t")
    found, position = [], log.first_position
    while entries := log.load_now(position, 100, 1 << 20):
        found += [entry.payload for entry in entries]
        position = log.next_position(entries[-1].position)
    storage.abandon()
    return found
