"""Directories of other formats: an earlier one is migrated, whatever interrupts that, and a later one is refused."""

from __future__ import annotations

import contextlib
import json
import random
import struct

import google_crc32c
import pytest
from magnetar.broker.storage import Position, Storage, StorageConfig
from magnetar.broker.storage.catalogue import FORMAT
from magnetar.broker.storage.disk.failures import NewerFormat
from magnetar.broker.storage.journal import format as layout
from magnetar.errors import StorageError
from magnetar.testing.simulated_disk import SimulatedCrash, SimulatedDisk

from tests.support.stepper import load_now, step_by_hand

CONFIG = StorageConfig(journal_file_bytes=40 * 1024, group_bytes=64 * 1024)
LOG = "persistent://public/default/t"
COPY = f"/d/before-format-{FORMAT}/catalogue"


def write(disk: SimulatedDisk, payloads: list[bytes], checkpoint_after: int = -1) -> None:
    storage = Storage.open("/d", CONFIG, disk, lambda: 1.0, random.Random(5))
    stepper = step_by_hand(storage, random.Random(5))
    log = storage.open_log(LOG)
    log.open_cursor("sub", Position(-1, -1), {"k": "v"})
    for number, payload in enumerate(payloads):
        log.append(payload, 1, 1, lambda _, error: None)
        stepper.run()
        if number == checkpoint_after:
            storage._checkpoint.begin()
            stepper.run()
    storage.abandon()


def read(disk: SimulatedDisk) -> list[bytes]:
    storage = Storage.open("/d", CONFIG, disk, lambda: 1.0, random.Random(6))
    try:
        log = storage.open_log(LOG)
        assert log.cursors["sub"].properties == {"k": "v"}
        payloads: list[bytes] = []
        position = Position(-1, -1)
        while entries := load_now(log, position, 1000, 10**9):
            payloads += [entry.payload for entry in entries]
            position = log.next_position(entries[-1].position)
        return payloads
    finally:
        storage.abandon()


def set_catalogue(disk: SimulatedDisk, number: int, lines: list[bytes]) -> None:
    body = b"\n".join(lines) + b"\n"
    first = f"MAGNETAR-CATALOGUE-{number} {len(body)} {google_crc32c.value(body):08x}\n".encode()
    disk.set_content("/d/catalogue", first + body)


def make_format_1(disk: SimulatedDisk) -> None:
    """Turn a directory into what the first format would be; its bytes are written out here, as no code makes them."""
    head, *logs = disk.content("/d/catalogue").splitlines()[1:]
    fields = json.loads(head)
    del fields["journal_key"], fields["journal_key_since"]
    set_catalogue(disk, 1, [json.dumps(fields).encode(), *logs])
    for path in [path for path in disk.paths() if path.endswith(".journal")]:
        content = disk.content(path)
        header = layout.decode_file_header(content)
        if header is None:  # prepared, which the first format does not know
            disk.remove(path)
            continue
        seed = google_crc32c.value(header.file_id.to_bytes(8, "little"))
        rest = struct.pack("<QQQQ", *header[:4])
        crc = google_crc32c.extend(seed, rest)
        old = bytearray((b"MGNTJRN1" + crc.to_bytes(4, "little") + rest).ljust(len(content), b"\0"))
        offset = layout.PAGE
        while (found := layout.decode_group(content, offset, len(content))) is not None:
            rest = struct.pack("<QQI", found.file_id, found.number, len(found.body))
            crc = google_crc32c.extend(google_crc32c.extend(seed, rest), found.body)
            group = b"GRP1" + crc.to_bytes(4, "little") + rest + found.body
            old[offset : offset + len(group)] = group
            offset = found.end
        disk.set_content(path, bytes(old))


def first_format(payloads: list[bytes]) -> SimulatedDisk:
    disk = SimulatedDisk()
    write(disk, payloads, checkpoint_after=3)
    make_format_1(disk)
    return disk


def test_directory_of_the_first_format_is_migrated_after_a_copy() -> None:
    payloads = [b"%d|" % number + bytes(5000) for number in range(12)]
    disk = first_format(payloads)
    old = disk.content("/d/catalogue")
    assert old.startswith(b"MAGNETAR-CATALOGUE-1 ")
    assert read(disk) == payloads
    assert disk.content("/d/catalogue").startswith(b"MAGNETAR-CATALOGUE-3 ")
    assert disk.content(COPY) == old
    write(disk, [b"more", b"and more"])
    assert read(disk) == [*payloads, b"more", b"and more"]
    assert disk.content(COPY) == old, "it is migrated once"
    disk = first_format(payloads)
    write(disk, [b"more"] * 20, checkpoint_after=12)
    assert read(disk) == [*payloads, *[b"more"] * 20]


@pytest.mark.slow
def test_kill_at_each_step_of_the_migration_is_gone_on_from() -> None:
    payloads = [b"%d|" % number + bytes(5000) for number in range(12)]
    first = first_format(payloads)
    formats: set[bytes] = set()
    for number in range(1, 1000):
        for loses in (False, True):
            disk = first.copy(number)
            disk.crash_at = number
            try:
                assert read(disk) == payloads
            except SimulatedCrash:
                pass
            else:
                assert number > 30
                assert formats == {b"1", b"3"}, "kills came before and after the mark"
                return
            disk.power_failure() if loses else disk.kill_process()
            formats.add(disk.content("/d/catalogue")[19:20])
            write(disk, [b"more"])
            disk.power_failure()
            assert read(disk) == [*payloads, b"more"], f"killed at operation {number}"
            assert disk.content(COPY) == first.content("/d/catalogue")


@pytest.mark.slow
def test_failing_step_of_the_migration_is_an_error_and_the_next_start_goes_on() -> None:
    payloads = [b"%d|" % number + bytes(5000) for number in range(12)]
    first = first_format(payloads)
    for number in range(1, 1000):
        disk = first.copy(number)
        disk.failures[number] = 28
        with contextlib.suppress(StorageError):
            assert read(disk) == payloads
        if disk.failures:
            assert number > 30
            return
        assert read(disk) == payloads


def test_directory_of_a_later_format_is_refused_by_name_and_untouched() -> None:
    disk = SimulatedDisk()
    write(disk, [b"one"])
    for number in (FORMAT + 1, 10):
        set_catalogue(disk, number, [b'{"whatever": "it will hold"}'])
        before = {path: disk.content(path) for path in disk.paths()}
        with pytest.raises(NewerFormat) as refusal:
            read(disk)
        assert f"/d has format {number}, but this version supports formats up to {FORMAT}" in str(refusal.value)
        assert "use the version of Magnetar that wrote the directory, or a later one" in str(refusal.value)
        assert {path: disk.content(path) for path in disk.paths()} == before


@pytest.mark.parametrize("checkpoint_after", [-1, 5])
def test_directory_of_the_second_format_is_migrated_after_a_copy(checkpoint_after: int) -> None:
    payloads = [b"%d|" % number + bytes(5000) for number in range(12)]
    disk = SimulatedDisk(1)
    write(disk, payloads, checkpoint_after)
    set_catalogue(disk, 2, disk.content("/d/catalogue").splitlines()[1:])
    old = disk.content("/d/catalogue")
    assert read(disk) == payloads
    assert disk.content("/d/catalogue").startswith(b"MAGNETAR-CATALOGUE-3 ")
    assert disk.content(COPY) == old
    assert read(disk) == payloads


@pytest.mark.parametrize("checkpoint_after", [-1, 2], ids=["journal", "catalogue"])
def test_ledgers_with_delayed_entries_are_known_after_a_restart(checkpoint_after: int) -> None:
    disk = SimulatedDisk(1)
    storage = Storage.open("/d", CONFIG, disk, lambda: 1.0, random.Random(5))
    stepper = step_by_hand(storage, random.Random(5))
    log = storage.open_log(LOG)
    for number in range(4):
        if number == 1:
            log.close_ledger()
            log.expect_delayed()
        if number == 2:
            log.close_ledger()
        log.append(b"x", 1, 1, lambda _, error: None)
        stepper.run()
        if number == checkpoint_after:
            storage._checkpoint.begin()
            stepper.run()
    delayed = {list(log.ledgers_by_id)[1]}
    assert log.delayed_ledgers == delayed
    storage.abandon()
    for _ in range(2):
        storage = Storage.open("/d", CONFIG, disk, lambda: 1.0, random.Random(6))
        log = storage.open_log(LOG)
        assert log.delayed_ledgers == delayed
        storage.abandon()
    log.drop_ledgers(sorted(delayed))
    assert not log.delayed_ledgers
