"""The SQLite provider: the conformance checks, and what only a file can suffer."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from magnetar.errors import InvalidConfig, StorageError
from magnetar.metadata.store.sqlite import SqliteStore
from magnetar.metadata.store.store import MetadataStore

from tests.conformance.metadata_store import CHECKS, check_survives_reopening


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore.open(tmp_path / "metadata.db")
    yield store
    await store.close()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_sqlite_keeps_the_promise(
    check: Callable[[MetadataStore, str], Awaitable[None]], store: SqliteStore
) -> None:
    await check(store, f"/{check.__name__}")


async def test_sqlite_store_survives_reopening(tmp_path: Path) -> None:
    async def make_store() -> MetadataStore:
        return SqliteStore.open(tmp_path / "metadata.db")

    await check_survives_reopening(make_store)


async def test_concurrent_puts_share_one_sync(tmp_path: Path, store: SqliteStore) -> None:
    await store.put("/first", b"v")  # the thread is awake and idle afterwards
    statements: list[str] = []
    await store._submit(lambda connection, _: connection.set_trace_callback(statements.append))
    await asyncio.gather(*(store.put(f"/a/{n}", b"v") for n in range(500)))
    assert statements.count("COMMIT") < 50  # at least ten to a transaction
    assert store._queue.empty()


async def test_mistake_in_one_change_is_answered_and_the_thread_goes_on(store: SqliteStore) -> None:
    with pytest.raises(StorageError, match=r"UnicodeEncodeError.*; the change was rolled back"):
        await store._submit(lambda connection, _: connection.execute("SELECT ?", ("\ud800",)))
    with pytest.raises(StorageError, match=r"ZeroDivisionError"):
        await store._submit(lambda *_: 1 // 0)
    with pytest.raises(InvalidConfig, match="is not allowed"):
        await store.put("/lone/\ud800", b"v")
    assert await store.put("/after", b"v") == 0


def test_opening_a_second_time_is_refused_while_it_is_open(tmp_path: Path) -> None:
    file = tmp_path / "metadata.db"
    store = SqliteStore.open(file)
    with pytest.raises(StorageError, match=r"metadata\.db is in use by another broker: stop that broker"):
        SqliteStore.open(file)
    asyncio.run(store.close())
    asyncio.run(SqliteStore.open(file).close())


def test_opening_in_a_missing_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot open the metadata file"):
        SqliteStore.open(tmp_path / "nowhere" / "metadata.db")


def test_opening_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "metadata.db"
    file.write_bytes(b"this is not a database" * 100)
    with pytest.raises(StorageError, match=r"is damaged .*: restore it from a backup"):
        SqliteStore.open(file)


def test_opening_a_damaged_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "metadata.db"

    async def fill() -> None:
        store = SqliteStore.open(file)
        await asyncio.gather(*(store.put(f"/a/{n}", os.urandom(500)) for n in range(200)))
        await store.close()

    asyncio.run(fill())
    content = bytearray(file.read_bytes())
    content[8192:12288] = os.urandom(4096)
    file.write_bytes(content)
    with pytest.raises(StorageError, match="is damaged"):
        SqliteStore.open(file)


def test_opening_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "metadata.db"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE theirs (x)")
    connection.commit()
    connection.close()
    with pytest.raises(StorageError, match="another program's SQLite file: choose another data directory"):
        SqliteStore.open(file)


def test_opening_a_later_format_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "metadata.db"
    asyncio.run(SqliteStore.open(file).close())
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    with pytest.raises(StorageError, match="has format 2, expected 1"):
        SqliteStore.open(file)


@pytest.mark.skipif(
    os.geteuid() == 0 and shutil.which("setpriv") is None,
    reason="root writes read-only files, and there is no setpriv (Debian: util-linux) to be somebody else",
)
def test_opening_a_read_only_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "metadata.db"
    asyncio.run(SqliteStore.open(file).close())
    connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    connection.close()
    file.chmod(0o400)
    tmp_path.chmod(0o500)
    if os.geteuid() == 0:  # a child without root's privilege to write everything
        import subprocess

        code = f"from magnetar.metadata.store.sqlite import SqliteStore; SqliteStore.open({str(file)!r})"
        command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--reuid=0", sys.executable, "-c", code]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        message = answer.stderr.strip().splitlines()[-1]
    else:
        with pytest.raises(StorageError) as caught:
            SqliteStore.open(file)
        message = str(caught.value)
    tmp_path.chmod(0o700)
    assert "is not writable" in message
    assert "check the permissions of the file and its directory" in message


async def test_a_full_disk_fails_the_put_and_keeps_what_was(store: SqliteStore) -> None:
    version = await store.put("/a", b"kept")

    def limit(connection: sqlite3.Connection, pages: int | None) -> None:
        (used,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {used if pages is None else pages}")

    await store._submit(lambda connection, _: limit(connection, None))
    with pytest.raises(StorageError, match=r"metadata\.db: database or disk is full; the change was rolled back"):
        await store.put("/b", bytes(500_000))
    assert await store.get("/a") == (b"kept", version)
    assert await store.get("/b") is None
    await store._submit(lambda connection, _: limit(connection, 1_000_000))
    await store.put("/b", bytes(500_000))


async def test_a_failed_commit_is_reported_to_nobody_as_done(store: SqliteStore) -> None:
    seen: list[object] = []
    store.watch("/", seen.append)

    def fail(connection: sqlite3.Connection, _: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    results = await asyncio.gather(store.put("/a", b"v"), store._submit(fail), return_exceptions=True)
    assert isinstance(results[1], StorageError)
    if isinstance(results[0], StorageError):  # both were in one group
        assert await store.get("/a") is None
        assert seen == []
    else:
        assert await store.get("/a") is not None


async def test_what_was_put_survives_the_process_being_killed(tmp_path: Path) -> None:
    code = (
        "import asyncio, os\n"
        "from magnetar.metadata.store.sqlite import SqliteStore\n"
        "async def main():\n"
        f"    store = SqliteStore.open({str(tmp_path / 'metadata.db')!r})\n"
        "    await asyncio.gather(*(store.put(f'/a/{n}', b'v') for n in range(100)))\n"
        "    os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    assert await process.wait() == -9
    store = SqliteStore.open(tmp_path / "metadata.db")
    assert len(await store.children("/a")) == 100
    await store.close()
