"""`magnetar backup` and `restore`: what is copied while servers run is of one moment, whole, and checked."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import stat
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pulsar
import pytest
from magnetar.broker.storage import Storage, StorageConfig
from magnetar.cli.backup.files import MANIFEST, checked_manifest, write_manifest
from magnetar.cli.backup.taking import Backup
from magnetar.cli.failure import Failure, Faults
from magnetar.cli.servers.data_directory import METADATA_FILE
from magnetar.metadata.store.sqlite import SqliteStore
from magnetar.state.client import Increment, TableClient
from magnetar.wire.position import Position

from tests.support.command import call
from tests.support.servers import COMMAND, Server, running, server

LOG = "persistent://public/default/t"
SMALL = StorageConfig(journal_file_bytes=64 * 1024, checkpoint_bytes=256 * 1024, unmoved_bytes=1 << 20)
TABLE = "public/default/f"


@contextlib.asynccontextmanager
async def broker_data(directory: Path) -> AsyncIterator[Storage]:
    """What a broker has open in its data directory."""
    await asyncio.to_thread(directory.mkdir, parents=True, exist_ok=True)
    metadata = SqliteStore.open(directory / METADATA_FILE)
    storage = Storage.open(directory / "storage", SMALL)
    storage.attach(asyncio.get_running_loop())
    try:
        yield storage
    finally:
        await storage.close()
        await metadata.close()


async def entries(directory: Path) -> list[bytes]:
    async with broker_data(directory) as storage:
        log = storage.open_log(LOG)
        found: list[bytes] = []
        at = log.first_position
        while some := await log.load(at, 1000, 1 << 40):
            found += [entry.payload for entry in some]
            at = Position(some[-1].position.ledger_id, some[-1].position.entry_id + 1)
        return found


def told(future: asyncio.Future[Exception | None], _: Position, error: Exception | None) -> None:
    future.set_result(error)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(3))
async def test_copies_beside_a_writing_storage_hold_all_that_was_confirmed(tmp_path: Path, seed: int) -> None:
    """Journal files of 64 KiB: files end, are recycled and catalogues replaced all the time."""
    rng = random.Random(seed)
    confirmed = 0
    is_done = False

    async with broker_data(tmp_path / "data") as storage:
        log = storage.open_log(LOG)

        async def write() -> None:
            nonlocal confirmed
            number = 0
            while not is_done:
                waiting = []
                for _ in range(rng.randrange(1, 40)):
                    future: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
                    payload = b"%08d" % number + bytes(rng.randrange(3000))
                    log.append(payload, 1, 1, partial(told, future))
                    waiting.append(future)
                    number += 1
                assert await asyncio.gather(*waiting) == [None] * len(waiting)
                confirmed = number
                await asyncio.sleep(0.001)

        writing = asyncio.ensure_future(write())
        copies = []
        for number in range(4):
            before = confirmed
            target = tmp_path / f"copy-{number}"
            target.mkdir()
            await asyncio.to_thread(Backup(tmp_path / "data", None, target).take)
            copies.append((before, target))
        is_done = True
        await writing
    assert copies[-1][0] > copies[0][0]
    for before, target in copies:
        found = [int(payload[:8]) for payload in await entries(target)]
        assert found == list(range(len(found)))
        assert len(found) >= before


def state_count(url: str) -> int:
    client = TableClient(url)
    try:
        value = client.read(TABLE, [b"count"])[0]
        return 0 if value is None or value.number is None else value.number
    finally:
        client.close()


class Load:
    """Publishes numbers, consumes and acknowledges them, and counts in the state: state, then acknowledgement."""

    def __init__(self, it: Server) -> None:
        self.published = self.acknowledged = 0
        self._is_over = threading.Event()
        self._client = pulsar.Client(it.service_url)
        self._table = TableClient(str(it.addresses["stateStorageServiceUrl"]))
        self._producer = self._client.create_producer("t", block_if_queue_full=True)
        self._consumer = self._client.subscribe("t", "s", initial_position=pulsar.InitialPosition.Earliest)
        self._threads = [threading.Thread(target=work) for work in (self._publish, self._consume)]
        for thread in self._threads:
            thread.start()

    def _publish(self) -> None:
        while not self._is_over.is_set():
            self._producer.send(b"%08d" % self.published + bytes(2000))
            self.published += 1

    def _consume(self) -> None:
        while not self._is_over.is_set():
            try:
                message = self._consumer.receive(200)
            except pulsar.Timeout:
                continue
            self._table.apply(TABLE, b"w" * 16, self.acknowledged + 1, [Increment(b"count", 1)])
            self._consumer.acknowledge(message)
            self.acknowledged += 1

    def stop(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(30)
        self._client.close()
        self._table.close()


@contextlib.contextmanager
def loaded(directory: Path) -> Iterator[tuple[Server, Load]]:
    directory.mkdir(parents=True)
    (directory / "small.yml").write_text("journalMaxSizeMB: 1\nmanagedLedgerMaxEntriesPerLedger: 500\n")
    with running("standalone", directory, "--config", str(directory / "small.yml")) as it:
        load = Load(it)
        try:
            yield it, load
        finally:
            load.stop()


def check_restored(directory: Path, published: int) -> None:
    """All that had a receipt is there, nothing is torn, the state is as far as what was acknowledged, or further."""
    with running("standalone", directory) as it:
        client = pulsar.Client(it.service_url)
        reader = client.create_reader("t", pulsar.MessageId.earliest)
        found = []
        while reader.has_message_available():
            found.append(int(reader.read_next(10_000).data()[:8]))
        begins = found[0] if found else 0  # those before were acknowledged and trimmed
        assert found == list(range(begins, begins + len(found)))
        assert begins + len(found) >= published
        consumer = client.subscribe("t", "s")
        next_one = int(consumer.receive(10_000).data()[:8]) if client_has_backlog(it) else begins + len(found)
        client.close()
        count = state_count(str(it.addresses["stateStorageServiceUrl"]))
        assert next_one <= count <= begins + len(found)


def client_has_backlog(it: Server) -> bool:
    stats = call("topics", "stats", "t", "-o", "json", admin_url=it.web_url).ok().json()
    return bool(stats["subscriptions"]["s"]["msgBacklog"])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_backup_of_a_busy_standalone_is_restored_whole(tmp_path: Path) -> None:
    with loaded(tmp_path / "busy") as (_, load):
        deadline = time.monotonic() + 60
        while load.acknowledged < 300:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        published = load.published
        answer = call("backup", str(tmp_path / "backup"), "--data-dir", str(tmp_path / "busy" / "data")).ok()
        assert "bytes in" in answer.out
    call("restore", str(tmp_path / "backup"), "--data-dir", str(tmp_path / "new" / "data")).ok()
    check_restored(tmp_path / "new", published)


@pytest.mark.crash
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(20))
def test_backup_that_is_killed_is_refused_or_whole(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    with loaded(tmp_path / "busy") as (_, load):
        while load.acknowledged < 100:
            time.sleep(0.01)
        published = load.published
        command = [*COMMAND, "backup", str(tmp_path / "backup"), "--data-dir", str(tmp_path / "busy" / "data")]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(rng.uniform(0.2, 2.0))
        process.kill()
        process.wait()
    answer = call("restore", str(tmp_path / "backup"), "--data-dir", str(tmp_path / "new" / "data"))
    if (tmp_path / "backup" / MANIFEST).exists():
        answer.ok()
        check_restored(tmp_path / "new", published)
    else:
        answer.refused(MANIFEST)
        assert not (tmp_path / "new" / "data").exists()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_backup_of_a_server_that_does_not_run_is_taken_too(tmp_path: Path) -> None:
    it = server("standalone", tmp_path)
    it.start()
    client = TableClient(str(it.addresses["stateStorageServiceUrl"]))
    client.apply(TABLE, b"w" * 16, 1, [Increment(b"count", 7)])
    client.close()
    call("produce", "t", "-m", "x", service_url=it.service_url).ok()
    it.kill()  # both databases have a log beside them
    (tmp_path / "backup").mkdir(mode=0o755)
    call("backup", str(tmp_path / "backup"), "--data-dir", str(tmp_path / "data")).ok()
    call("restore", str(tmp_path / "backup"), "--data-dir", str(tmp_path / "new" / "data")).ok()
    for directory in (tmp_path / "backup", tmp_path / "new" / "data"):
        modes = {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in (directory, *directory.rglob("*"))}
        assert modes == {0}, "only their owner may read them"
    with running("standalone", tmp_path / "new") as again:
        assert state_count(str(again.addresses["stateStorageServiceUrl"])) == 7
        assert call("topics", "list", "public/default", admin_url=again.web_url).ok().out.split() == [LOG]


def made(directory: Path) -> Path:
    (directory / "storage").mkdir(parents=True)
    (directory / "storage" / "catalogue").write_bytes(b"abc")
    (directory / METADATA_FILE).write_bytes(b"def")
    write_manifest(directory, {})
    return directory


def test_what_differs_from_the_manifest_is_refused_a_line_each(tmp_path: Path) -> None:
    backup = made(tmp_path)
    assert set(checked_manifest(backup)["files"]) == {"storage/catalogue", METADATA_FILE}
    (backup / "storage" / "catalogue").write_bytes(b"abd")
    (backup / METADATA_FILE).unlink()
    with pytest.raises(Faults) as caught:
        checked_manifest(backup)
    assert [line.removeprefix(f"{backup}: ") for line in caught.value.lines] == [
        f"{METADATA_FILE} is missing: use another backup",
        "storage/catalogue is damaged: its length or checksum differs: use another backup",
    ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 2}, "is a backup of format 2, not 1"),
        ({"files": {"../x": {}}}, "outside the backup"),
        ({"files": {"/etc/passwd": {}}}, "outside the backup"),
        ({"files": 3}, "cannot be read"),
    ],
)
def test_manifest_that_says_something_else_is_refused(tmp_path: Path, change: dict[str, object], words: str) -> None:
    backup = made(tmp_path)
    manifest = json.loads((backup / MANIFEST).read_text())
    (backup / MANIFEST).write_text(json.dumps(manifest | change))
    with pytest.raises(Failure, match=words):
        checked_manifest(backup)


@pytest.mark.slow
def test_broker_that_keeps_its_metadata_elsewhere_is_not_copied(tmp_path: Path) -> None:
    (tmp_path / "broker.yml").write_text(f"metadataStoreUrl: sqlite:{tmp_path}/elsewhere.sqlite\n")
    with running("broker", tmp_path, "--config", str(tmp_path / "broker.yml")):
        data = tmp_path / "data"
        call("backup", str(tmp_path / "b"), "--data-dir", str(data)).refused("stores its metadata elsewhere")
        (data / METADATA_FILE).write_bytes((tmp_path / "elsewhere.sqlite").read_bytes()[:0])  # of an earlier life
        call("backup", str(tmp_path / "b"), "--data-dir", str(data)).refused("stores its metadata elsewhere")
        assert not (tmp_path / "b").exists()


@pytest.mark.slow
def test_places_that_are_none_are_refused(tmp_path: Path) -> None:
    call("backup", str(tmp_path / "b"), "--data-dir", str(tmp_path / "no")).refused("is not a broker's data directory")
    assert not (tmp_path / "b").exists()
    call("restore", str(tmp_path / "b"), "--data-dir", str(tmp_path / "d")).refused(MANIFEST)
    backup = made(tmp_path / "made")
    call("restore", str(backup), "--data-dir", str(backup)).refused("contains", "requires an empty directory")
    call("backup", str(backup), "--data-dir", str(backup)).refused("contains", "requires an empty directory")
