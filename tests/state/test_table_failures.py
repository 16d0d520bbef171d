"""What happens when the disk, the file or the way to the service is not as it should be."""

from __future__ import annotations

import os
import resource
import signal
import socket
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from magnetar.errors import StateStoreFailed, StateStoreUnavailable
from magnetar.state.client import Increment, Put, TableClient
from magnetar.state.database import FILE
from magnetar.state.server import TableServer

from tests.support.calm import Calm
from tests.support.command import call

from .conftest import TABLE
from .processes import as_it_sees, running_service, small_disk, until_reachable

W = b"w" * 16
KIB = 1024


def write_until_it_fails(tables: TableClient, failure: str) -> int:
    """Put values of 8 KiB until a call fails, for the reason given; return how many were acknowledged."""
    for acknowledged in range(10_000):
        try:
            key = b"%d" % acknowledged
            tables.apply(TABLE, W, acknowledged + 1, [Put(key, bytes(8 * KIB)), Increment(b"calls", 1)])
        except StateStoreFailed as error:
            text = str(error)
            break
    assert failure in text
    assert "the call was rolled back" in text
    assert "\n" not in text
    return acknowledged


def counted(tables: TableClient) -> int:
    value = tables.read(TABLE, [b"calls"])[0]
    assert value is not None
    assert value.number is not None
    return value.number


@pytest.mark.slow
def test_full_disk_loses_nothing_and_goes_on_when_there_is_room() -> None:
    with small_disk(2 * KIB * KIB) as disk:
        if disk is None:
            pytest.skip("mounting a small file system in a namespace of its own is not permitted here")
        directory, before = disk
        with running_service(directory / "state", before) as (service, tables):
            ballast = as_it_sees(service, directory) / "ballast"
            ballast.write_bytes(bytes(512 * KIB))
            acknowledged = write_until_it_fails(tables, "is full: free some space, writes then resume automatically")
            assert acknowledged > 10
            assert counted(tables) == acknowledged  # reads go on
            assert "is full" in str(tables.statistics()["failure"])
            assert service.log.count("is full") == 1
            ballast.unlink()
            for _ in range(2):  # the call that failed is repeated, and once more
                tables.apply(TABLE, W, acknowledged + 1, [Increment(b"calls", 1)])
            assert counted(tables) == acknowledged + 1
            assert tables.statistics()["failure"] == ""


@pytest.mark.slow
def test_failing_writes_lose_nothing_and_end_with_their_cause(tmp_path: Path) -> None:
    with running_service(tmp_path / "state") as (service, tables):
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(service.pid, resource.RLIMIT_FSIZE, (1024 * KIB, resource.RLIM_INFINITY))
        acknowledged = write_until_it_fails(tables, "failed (SQLITE_IOERR_WRITE: disk I/O error): check the disk")
        assert acknowledged > 10
        assert counted(tables) == acknowledged
        service.kill()
        service.start()
        until_reachable(tables)
        assert counted(tables) == acknowledged
        resource.prlimit(service.pid, resource.RLIMIT_FSIZE, unlimited)
        tables.apply(TABLE, W, acknowledged + 1, [Increment(b"calls", 1)])
        assert counted(tables) == acknowledged + 1


def test_file_locked_by_another_program_is_named_and_waited_for(
    service: TableServer, tables: TableClient, tmp_path: Path, write: Callable[..., None]
) -> None:
    write(Increment(b"n", 1))
    other = sqlite3.connect(tmp_path / FILE, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StateStoreFailed, match="is locked by another program: stop that program, writes then resume"):
        tables.apply(TABLE, W, 1, [Increment(b"n", 1)])
    assert tables.read(TABLE, [b"n"])[0] is not None
    other.execute("ROLLBACK")
    other.close()
    tables.apply(TABLE, W, 1, [Increment(b"n", 1)])
    value = tables.read(TABLE, [b"n"])[0]
    assert value is not None
    assert value.number == 2


def filled(directory: Path) -> None:
    """Leave a database of some pages behind."""
    server = TableServer.start(directory)
    client = TableClient(server.url)
    client.apply(TABLE, W, 1, [Put(b"%d" % i, bytes(200)) for i in range(2000)])
    client.close()
    server.stop()


@pytest.mark.parametrize(
    ("offset", "words"), [(0, "file is not a database"), (4096 * 20, "is damaged"), (4096 * 20 + 8, "is damaged")]
)
def test_damaged_database_stops_the_start(tmp_path: Path, offset: int, words: str) -> None:
    filled(tmp_path)
    with (tmp_path / FILE).open("r+b") as file:
        file.seek(offset)
        file.write(b"\xaa" * 300)
    with pytest.raises(StateStoreFailed, match=words) as failure:
        TableServer.start(tmp_path)
    assert str(tmp_path / FILE) in str(failure.value)
    assert "restore it from a backup" in str(failure.value)
    assert "\n" not in str(failure.value)


def test_damage_below_a_running_service_is_told_with_the_call(tmp_path: Path) -> None:
    filled(tmp_path)
    server = TableServer.start(tmp_path)
    client = TableClient(server.url)
    with (tmp_path / FILE).open("r+b") as file:
        size = file.seek(0, 2)
        file.seek(4096 * 10)
        file.write(b"\xaa" * (size - 4096 * 10))
    with pytest.raises(StateStoreFailed, match=r"is damaged .* restore it from a backup"):
        client.read(TABLE, [b"%d" % i for i in range(2000)])
    client.close()
    server.stop()


def test_database_of_another_program_is_refused(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / FILE)
    other.execute("CREATE TABLE t (x)")
    other.close()
    with pytest.raises(StateStoreFailed, match="is an SQLite file of another program: choose another data directory"):
        TableServer.start(tmp_path)


def test_database_of_a_later_version_is_refused(tmp_path: Path) -> None:
    filled(tmp_path)
    later = sqlite3.connect(tmp_path / FILE)
    later.execute("PRAGMA user_version = 7")
    later.close()
    with pytest.raises(StateStoreFailed, match="has format 7, this version supports 2: use the version that wrote it"):
        TableServer.start(tmp_path)


@pytest.mark.slow
def test_second_service_on_a_directory_or_port_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    with running_service(directory) as (service, _):
        second = ("state-store", "--data-dir", str(directory), "--state-port", "0")
        call(*second).refused(f"in use by process {service.pid}", "--data-dir")
        port = service.url.rpartition(":")[2]
        call("state-store", "--data-dir", str(tmp_path / "b"), "--state-port", port).refused(
            f"port {port} on 127.0.0.1 is in use", "--state-port"
        )
        assert service.stop() == 0


@pytest.mark.slow
def test_damaged_database_is_one_line_of_the_command(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"this is no database" * 400)
    call("state-store", "--data-dir", str(tmp_path), "--state-port", "0").refused(FILE, "restore it from a backup")


@pytest.mark.slow
def test_client_goes_on_after_a_kill_and_a_restart(tmp_path: Path) -> None:
    with running_service(tmp_path / "state") as (service, tables):
        tables.apply(TABLE, W, 1, [Increment(b"calls", 1)])
        service.kill()
        with pytest.raises(StateStoreUnavailable, match=f"{service.url} cannot be reached .*stateStorageServiceUrl"):
            tables.apply(TABLE, W, 1, [Increment(b"calls", 1)])
        service.start()
        until_reachable(tables)
        tables.apply(TABLE, W, 1, [Increment(b"calls", 1)])
        assert counted(tables) == 1


@pytest.mark.slow
def test_frozen_service_is_not_waited_for_beyond_the_deadline(tmp_path: Path) -> None:
    with running_service(tmp_path / "state") as (service, tables):
        tables.apply(TABLE, W, 1, [Increment(b"calls", 1)])
        os.kill(service.pid, signal.SIGSTOP)
        started = Calm()
        with pytest.raises(StateStoreUnavailable, match=r"did not answer within 0\.3 s"):
            tables.apply(TABLE, W, 2, [Increment(b"calls", 1)], timeout_s=0.3)
        assert started.calm_s < 5, started
        os.kill(service.pid, signal.SIGCONT)
        tables.apply(TABLE, W, 2, [Increment(b"calls", 1)])
        assert counted(tables) == 2


def test_what_is_no_state_store_is_told_within_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        answers = threading.Thread(target=_answer_as_http, args=(listener,))
        answers.start()
        client = TableClient(f"bk://127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(StateStoreUnavailable, match=r"stateStorageServiceUrl|did not answer within"):
            client.read(TABLE, [b"k"], timeout_s=2)
        client.close()
        listener.shutdown(socket.SHUT_RDWR)
        answers.join()


def _answer_as_http(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
