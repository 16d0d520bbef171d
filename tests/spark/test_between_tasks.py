"""What Python workers do between tasks: archives that change are read anew, and garbage is collected as before."""

from __future__ import annotations

import gc
import importlib
import os
import socket
import subprocess
import sys
import zipfile
import zipimport
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest
from magnetar.spark.session import Session
from magnetar.spark.source import between_tasks
from magnetar.spark.worker_setup import acknowledge_at_once

MODULE = "of_an_archive"


@pytest.fixture
def kept_archives(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The archives whose directories are read anew, while that depends on whether they changed."""
    read: list[str] = []
    really = between_tasks._read_again

    def read_again(importer: zipimport.zipimporter) -> None:
        read.append(importer.archive)
        really(importer)

    monkeypatch.setattr(between_tasks, "_read_again", read_again)
    monkeypatch.setattr(zipimport.zipimporter, "invalidate_caches", zipimport.zipimporter.invalidate_caches)
    between_tasks.keep_archives()
    return read


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "modules.zip"
    monkeypatch.syspath_prepend(str(path))
    yield path
    for name in (MODULE, "another_one", "package", "package.another_one"):
        sys.modules.pop(name, None)


def write(path: Path, value: int, *more: str) -> None:
    """Replace an archive by another, as a user who adds a file of that name."""
    fresh = path.with_suffix(".new")
    with zipfile.ZipFile(fresh, "w") as target:
        target.writestr(f"{MODULE}.py", f"VALUE = {value}")
        for name in ("package.__init__", *more):
            target.writestr(f"{name.replace('.', '/')}.py", "")
    os.replace(fresh, path)


def imported() -> int:
    sys.modules.pop(MODULE, None)
    value: int = importlib.import_module(MODULE).VALUE
    return value


def test_an_archive_is_read_anew_when_it_is_another_one(archive: Path, kept_archives: list[str]) -> None:
    write(archive, 1)
    importlib.invalidate_caches()
    assert imported() == 1
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("package.another_one")
    importlib.invalidate_caches()
    before = kept_archives.count(str(archive))
    for _ in range(3):
        importlib.invalidate_caches()
        assert imported() == 1
    assert kept_archives.count(str(archive)) == before
    write(archive, 2, "another_one", "package.another_one")
    importlib.invalidate_caches()
    assert imported() == 2
    assert importlib.import_module("another_one").__file__
    assert importlib.import_module("package.another_one").__file__
    assert kept_archives.count(str(archive)) == before + 2  # once for the package


def test_an_archive_that_is_gone_is_not_taken_for_what_it_was(archive: Path, kept_archives: list[str]) -> None:
    write(archive, 1)
    importlib.invalidate_caches()
    assert imported() == 1
    os.unlink(archive)
    importlib.invalidate_caches()
    with pytest.raises(ModuleNotFoundError):
        imported()
    write(archive, 3)
    importlib.invalidate_caches()
    assert imported() == 3


def test_what_was_imported_is_left_out_of_collections_and_later_garbage_is_not() -> None:
    program = """
import gc, weakref
from magnetar.spark.source.between_tasks import freeze_imported
class Cycle:
    def __init__(self):
        self.itself = self
before = weakref.ref(Cycle())
freeze_imported(collect=True)
assert before() is None
counts = [gc.get_freeze_count()]
kept = [[] for _ in range(1000)]
freeze_imported()
counts.append(gc.get_freeze_count())
import decimal
freeze_imported()
counts.append(gc.get_freeze_count())
after = weakref.ref(Cycle())
gc.collect()
assert after() is None
assert 1000 < counts[0] == counts[1] < counts[2] - 1000, counts
"""
    subprocess.run([sys.executable, "-c", program], check=True)


class Received:
    """Stands for PySpark's module: what its function was called with."""

    def __init__(self) -> None:
        self.arguments: list[tuple[Any, ...]] = []

    def setup_spark_files(self, *arguments: Any) -> None:
        self.arguments.append(arguments)


def receiving_from(connection: socket.socket) -> IO[bytes]:
    """Return a file of a connection, as PySpark's daemon makes it."""
    return os.fdopen(os.dup(connection.fileno()), "rb")


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="no such option on this system")
def test_what_has_come_of_a_task_is_acknowledged_on_tcp_connections() -> None:
    received = Received()
    util = SimpleNamespace(setup_spark_files=received.setup_spark_files)
    acknowledge_at_once(util)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as jvm:
        worker, _ = server.accept()
        with worker, receiving_from(worker) as file:
            worker.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
            jvm.sendall(b"task")
            util.setup_spark_files(file)
            assert worker.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 1
            assert file.read(4) == b"task"
    one, other = socket.socketpair()
    with one, other, receiving_from(one) as of_unix:
        util.setup_spark_files(of_unix)
    util.setup_spark_files("directory", ["include"])  # Spark 4.3
    assert received.arguments == [(file,), (of_unix,), ("directory", ["include"])]


@pytest.mark.spark
def test_a_worker_that_has_run_a_task_has_little_to_collect(session: Session) -> None:
    def look(_: int) -> tuple[int, int, int]:
        import pandas  # noqa: F401

        return os.getpid(), gc.get_freeze_count(), len(gc.get_objects())

    found: dict[int, list[tuple[int, int]]] = {}
    for _ in range(6):
        for pid, frozen, others in session.context.parallelize(range(2), 2).map(look).collect():
            found.setdefault(pid, []).append((frozen, others))
    used_again = [looks for looks in found.values() if len(looks) > 1]
    assert used_again, found
    for looks in used_again:
        frozen, others = looks[-1]
        assert others < frozen / 10, found
