"""What a crash may do to the database's log, and what only a bad disk does."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from magnetar.errors import StateStoreFailed
from magnetar.state.client import Change, Increment, Put
from magnetar.state.codec import encode_changes
from magnetar.state.database import FILE
from magnetar.state.store import TableStore
from magnetar.wire import state_pb2 as pb

from .conftest import TABLE

LOG = f"{FILE}-wal"
FRAME_BYTES = 24 + 4096


class Written:
    """A store's files as a crash would leave them, and how long the log was after each acknowledged call."""

    def __init__(self, directory: Path, rng: random.Random) -> None:
        self.directory = directory
        self.log_bytes: list[int] = []
        live = directory / "live"
        live.mkdir()
        store = TableStore.open(live)
        for number in range(1, 25):
            changes: list[Change] = [Increment(b"calls", 1)]
            changes += [
                Put(b"%d" % rng.randrange(10_000), rng.randbytes(rng.choice((10, 2000)))) for _ in range(number)
            ]
            request = pb.ApplyRequest(table=TABLE, writer=b"w" * 16, sequence=number, changes=encode_changes(changes))
            store.apply(request)
            self.log_bytes.append((live / LOG).stat().st_size)
        self.files = {name: (live / name).read_bytes() for name in (FILE, LOG)}
        store.close()

    def calls_after(self, log: bytes) -> int:
        """How many calls a store knows that opens these files with another log."""
        crashed = self.directory / "crashed"
        crashed.mkdir()
        try:
            (crashed / FILE).write_bytes(self.files[FILE])
            (crashed / LOG).write_bytes(log)
            store = TableStore.open(crashed)
            value = store.read(TABLE, [b"calls"])[0]
            store.close()
            return (value.number or 0) if value else 0
        finally:
            shutil.rmtree(crashed)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(tmp_path_factory.mktemp("log"), random.Random(5))


@pytest.mark.slow
def test_log_torn_anywhere_in_its_last_transaction_keeps_what_was_acknowledged(written: Written) -> None:
    rng = random.Random(1)
    log = written.files[LOG]
    for call in rng.sample(range(1, 24), 8):
        start, end = written.log_bytes[call - 1], written.log_bytes[call]
        assert end - start >= FRAME_BYTES
        torn = bytearray(log[:end])
        match rng.randrange(3):
            case 0:  # cut
                del torn[rng.randrange(start, end) :]
            case 1:  # one page never came
                place = rng.randrange(start, end)
                torn[place : place + 512] = bytes(len(torn[place : place + 512]))
            case 2:  # only some of its frames came
                for frame in range(start, end, FRAME_BYTES):
                    if frame == start or rng.random() < 0.5:
                        torn[frame : frame + FRAME_BYTES] = bytes(FRAME_BYTES)
        assert written.calls_after(bytes(torn)) in (call, call + 1)
        assert written.calls_after(log[:start]) == call


@pytest.mark.slow
def test_log_damaged_in_an_earlier_transaction_stops_the_start(written: Written) -> None:
    rng = random.Random(2)
    for call in rng.sample(range(1, 22), 8):
        damaged = bytearray(written.files[LOG])
        place = rng.randrange(written.log_bytes[call - 1], written.log_bytes[call])
        damaged[place] ^= 0x40
        with pytest.raises(StateStoreFailed, match=r"is damaged before its end.*restore") as failure:
            written.calls_after(bytes(damaged))
        assert "\n" not in str(failure.value)


def test_log_with_a_damaged_head_stops_the_start(written: Written) -> None:
    damaged = bytearray(written.files[LOG])
    damaged[9] ^= 1
    for _ in range(2):  # a refused start leaves the files as they are
        with pytest.raises(StateStoreFailed, match="is damaged before its end"):
            written.calls_after(bytes(damaged))


def test_log_that_never_got_a_head_is_nothing(written: Written) -> None:
    assert written.calls_after(bytes(3 * FRAME_BYTES)) == 0


@pytest.mark.slow
def test_refused_start_leaves_the_log_where_it_is(tmp_path: Path) -> None:
    written = Written(tmp_path, random.Random(1))
    damaged = bytearray(written.files[LOG])
    damaged[written.log_bytes[3] + 100] ^= 1
    crashed = tmp_path / "refused"
    crashed.mkdir()
    (crashed / FILE).write_bytes(written.files[FILE])
    (crashed / LOG).write_bytes(damaged)
    for _ in range(2):
        with pytest.raises(StateStoreFailed, match="is damaged before its end"):
            TableStore.open(crashed)
    assert (crashed / LOG).read_bytes() == bytes(damaged)
    (crashed / LOG).rename(tmp_path / "moved away")
    TableStore.open(crashed).close()
