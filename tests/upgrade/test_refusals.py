"""Data directories that a start refuses: of a later version, and with records that only a fault can have written."""

from __future__ import annotations

import asyncio
import sqlite3
import tarfile
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from magnetar.broker.storage import Storage
from magnetar.broker.storage.journal.format import ENTRY, ENTRY_FIELDS_BYTES, encode_change, pack_entry_head
from magnetar.tasks import called_back

from tests.support.servers import Server, ServerFailed, server
from tests.upgrade.test_upgrade import ARCHIVES

pytestmark = pytest.mark.slow


def set_storage(data: Path) -> None:
    file = data / "storage" / "catalogue"
    file.write_bytes(file.read_bytes().replace(b"MAGNETAR-CATALOGUE-1 ", b"MAGNETAR-CATALOGUE-9 ", 1))


def set_database(file: Path) -> None:
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA user_version = 9")
    connection.close()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (set_storage, "data/storage has format 9, but this version supports formats up to 3"),
        (lambda data: set_database(data / "metadata.sqlite"), "metadata.sqlite has format 9, expected 1"),
        (
            lambda data: set_database(data / "state" / "state.sqlite"),
            "state.sqlite has format 9, this version supports 2",
        ),
    ],
    ids=["storage", "metadata", "state"],
)
def test_data_of_a_later_version_is_refused_by_name(change: Callable[[Path], None], words: str, tmp_path: Path) -> None:
    it = server("standalone", tmp_path)
    with tarfile.open(ARCHIVES[0]) as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)  # Debian's Python 3.11.2 has none
        tar.extractall(tmp_path / "data")
    change(tmp_path / "data")
    log = refusal(it)
    assert words in log
    assert "the version" in log, "the remedy"


def refusal(it: Server) -> str:
    """Start a server that must refuse, and return its log."""
    with pytest.raises(ServerFailed, match="ended with 1"):
        it.start()
    log = it.log_tail()
    assert "Traceback" not in log
    return log


def test_records_of_an_unknown_topic_are_refused_and_salvaged(tmp_path: Path) -> None:
    asyncio.run(write_unknown(tmp_path / "data" / "storage"))
    it = server("broker", tmp_path)
    log = refusal(it)
    assert "contains 3 records of 1 topics that were neither created nor deleted" in log
    assert "log 40 with 3 records (2 entries)" in log
    assert "0000000000000001.journal at offset 4096" in log
    assert "run `magnetar broker --salvage`" in log
    try:
        it.start(["--salvage"])
        assert "salvaged log 40 with 3 records" in it.log_tail()
        assert entries_of(it) == 2
        it.kill()
        it.restart()
        assert entries_of(it) == 2
    finally:
        it.stop()


async def write_unknown(directory: Path) -> None:
    """Write records that no call makes, as a fault would."""
    storage = Storage.open(directory)
    storage.attach(asyncio.get_running_loop())
    records = [encode_change({"do": "begin_ledger", "log": 40, "ledger": 7, "created_ms": 1})]
    for number in range(2):
        records.append(pack_entry_head(ENTRY, ENTRY_FIELDS_BYTES + 5, 7, number, 1, 1) + b"bytes")
    await called_back(lambda done: storage._core.record(done, *records))
    storage._core.lanes.stop()
    storage.abandon()


def entries_of(it: Server) -> int:
    """How many entries the salvaged topic has."""
    url = f"{it.web_url}/admin/v2/persistent/public/default/salvaged-40/internalStats"
    return int(httpx.get(url, timeout=30).raise_for_status().json()["numberOfEntries"])
