"""The file of a ledger: what was synced once is never written over, whatever a later try writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from magnetar.broker.storage.disk.disk import DiskFile, LocalDisk
from magnetar.broker.storage.disk.failures import DamagedFile
from magnetar.broker.storage.journal.format import ENTRY, ENTRY_FIELDS_BYTES, EntryRecord, pack_entry_head
from magnetar.broker.storage.ledgers.ledger_file import _BLOCK_BYTES, LedgerFile

LEDGER = 7


def parts(first: int, end: int) -> list[bytes]:
    """Heads and payloads, alternating, of the entries from ``first`` to ``end``."""
    found = []
    for entry_id in range(first, end):
        payload = b"payload %d" % entry_id
        head = pack_entry_head(ENTRY, len(payload) + ENTRY_FIELDS_BYTES, LEDGER, entry_id, 1, 1000 + entry_id)
        found += [head, payload]
    return found


def ledger_file(path: Path) -> LedgerFile:
    return LedgerFile(LocalDisk(), str(path / "7.ledger"), LEDGER)


def payloads(file: LedgerFile, end: int) -> list[bytes]:
    return [entry.payload for entry in file.read(0, end, 1000, 1_000_000)]


def test_second_try_leaves_what_the_first_one_synced(tmp_path: Path) -> None:
    file = ledger_file(tmp_path)
    file.write(0, parts(0, 4))
    synced = Path(file.path).read_bytes()
    file.write(0, parts(0, 9))  # the catalogue that counts four entries may be in place
    assert Path(file.path).read_bytes().startswith(synced)
    assert payloads(ledger_file(tmp_path), 9) == parts(0, 9)[1::2]
    again = ledger_file(tmp_path)
    again.write(4, parts(4, 12))  # after a restart with that catalogue
    assert payloads(again, 12) == payloads(ledger_file(tmp_path), 12) == parts(0, 12)[1::2]


def test_second_try_with_nothing_new_changes_nothing(tmp_path: Path) -> None:
    file = ledger_file(tmp_path)
    file.write(0, parts(0, 4))
    synced = Path(file.path).read_bytes()
    file.write(0, parts(0, 4))
    assert Path(file.path).read_bytes() == synced
    file.write(4, parts(4, 5))
    assert payloads(file, 5) == parts(0, 5)[1::2]


def test_block_over_both_sides_of_what_the_catalogue_counts_is_kept(tmp_path: Path) -> None:
    ledger_file(tmp_path).write(0, parts(0, 9))
    file = ledger_file(tmp_path)
    assert payloads(file, 4) == parts(0, 4)[1::2]
    file.write(4, parts(4, 12))
    assert payloads(file, 12) == payloads(ledger_file(tmp_path), 12) == parts(0, 12)[1::2]


def test_damaged_block_over_both_sides_is_not_written_over(tmp_path: Path) -> None:
    ledger_file(tmp_path).write(0, parts(0, 9))
    path = Path(ledger_file(tmp_path).path)
    damaged = path.read_bytes()[:-1] + b"?"
    path.write_bytes(damaged)
    with pytest.raises(DamagedFile, match="checksum mismatch in a block of 9 entries"):
        ledger_file(tmp_path).write(4, parts(4, 12))
    assert path.read_bytes() == damaged


@pytest.fixture
def blocks_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The entries by which blocks are looked up to be read."""
    found: list[int] = []
    read = LedgerFile._block_with

    def noted(self: LedgerFile, file: DiskFile, entry_id: int) -> list[EntryRecord]:
        found.append(entry_id)
        return read(self, file, entry_id)

    monkeypatch.setattr(LedgerFile, "_block_with", noted)
    return found


def large_parts(times: list[int]) -> list[bytes]:
    """Heads and payloads of entries that fill one block each, all of different sizes."""
    found = []
    for entry_id, time_ms in enumerate(times):
        payload = bytes(_BLOCK_BYTES + entry_id)
        found += [pack_entry_head(ENTRY, len(payload) + ENTRY_FIELDS_BYTES, LEDGER, entry_id, 1, time_ms), payload]
    return found


@pytest.mark.parametrize("is_reopened", [False, True])
def test_a_search_by_time_reads_no_block_that_is_too_old(
    tmp_path: Path, blocks_read: list[int], *, is_reopened: bool
) -> None:
    file = ledger_file(tmp_path)
    file.write(0, large_parts([10, 20, 5, 30, 7, 40, 8]))
    if is_reopened:
        file = ledger_file(tmp_path)
    for time_ms, start, end, expected in [
        (25, 0, 7, 3),
        (31, 0, 7, 5),
        (31, 6, 7, None),
        (9, 2, 3, None),
        (9, 4, 6, 5),
    ]:
        blocks_read.clear()
        assert file.first_since(time_ms, start, end) == expected
        assert blocks_read == ([] if expected is None else [expected])


def test_a_backlog_is_measured_by_reading_at_most_the_blocks_at_its_ends(
    tmp_path: Path, blocks_read: list[int]
) -> None:
    ledger_file(tmp_path).write(0, [*large_parts([1] * 20), *parts(20, 40)])
    sizes = [len(payload) for payload in [*large_parts([1] * 20), *parts(20, 40)][1::2]]
    file = ledger_file(tmp_path)
    for start in range(41):
        for end in range(start, 41):
            blocks_read.clear()
            assert file.bytes_from(start, end) == sum(sizes[start:end])
            assert len(blocks_read) <= 1, "only the small entries share a block"
