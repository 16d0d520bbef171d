"""Functions deployed and deleted again and again: what the servers hold does not grow with how often.

All of them have the same code, so one package serves them: a package that no function names stays for an hour. The
broker's cache of recent entries is set to its smallest, as it is meant to fill. A share of the rounds makes the test as
much shorter.
"""

from __future__ import annotations

import itertools
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest

from tests.support.functions import Functions
from tests.support.sample import sample_of
from tests.support.servers import Server, descendants, server
from tests.support.waiting import wait_for

from .conftest import SERVER

SETTINGS = "managedLedgerCacheSizeMB=1\n"
SOURCE = "def process(text):\n    return text + '!'\n"
DEPLOYMENTS = {"thread": 500, "process": 60}
LEAST = 40
"""Deployments, of any share: fewer cannot tell what each leaves from noise."""
WARM_UP = 20
LEFT_KIB = {"thread": 16, "process": 32}
"""Memory that a deployment may leave in all processes together."""
SLACK_KIB = 12 * 1024
"""Memory that may come whatever the number of deployments: the broker takes 8 MiB more in the first 200, then none."""
CALM_WITHIN_S = 240.0
LOG_BYTES = 2048
"""Log of one deployment; a traceback has more."""


@dataclass(frozen=True)
class Held:
    """What the processes of a server hold."""

    memory_kib: dict[str, int]
    files: dict[str, int]
    threads: dict[str, int]
    kept: frozenset[str]
    topics: frozenset[str]


@pytest.fixture
def standalone(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    settings = tmp_path / "broker.conf"
    settings.write_text(SETTINGS)
    it = server("standalone", tmp_path, "--config", str(settings))
    request.node.stash[SERVER] = it
    try:
        it.start()
        yield it
    finally:
        it.stop()


@pytest.mark.crash
@pytest.mark.parametrize("runtime", DEPLOYMENTS)
def test_nothing_grows_with_deployments(standalone: Server, tmp_path: Path, runtime: str) -> None:
    sample = sample_of(os.environ)
    deployments = max(LEAST, DEPLOYMENTS[runtime] * (sample.percent if sample else 100) // 100)
    names = (f"gone{number}" for number in itertools.count())
    source = tmp_path / "shout.py"
    source.write_text(SOURCE)
    with Functions(standalone.web_url) as functions:
        _deploy_and_delete(functions, itertools.islice(names, WARM_UP), source, runtime)
        before, logged_before = _held(standalone), standalone.log_file.stat().st_size
        _deploy_and_delete(functions, itertools.islice(names, deployments), source, runtime)
        logged = standalone.log_file.stat().st_size - logged_before
        after = wait_for(lambda: _as_calm(standalone, before), "end of what was deployed", CALM_WITHIN_S)
    grown = {name: after.memory_kib[name] - before.memory_kib[name] for name in after.memory_kib}
    print(f"{deployments} deployments, KiB more: {grown}, {logged // deployments} bytes of log each")
    assert sum(grown.values()) <= SLACK_KIB + deployments * LEFT_KIB[runtime], f"{deployments} left {grown} KiB"
    assert _more(before.files, after.files) <= 3, f"open files: {before.files}, then {after.files}"
    assert _more(before.threads, after.threads) <= 3, f"threads: {before.threads}, then {after.threads}"
    assert logged <= deployments * LOG_BYTES, f"{logged} bytes of log of {deployments} deployments"
    assert after.topics == before.topics
    standalone.stop()
    left = [name for name in _metadata_keys(standalone.directory / "data" / "metadata.sqlite") if "gone" in name]
    assert not left, f"in the metadata: {left}"


def _deploy_and_delete(functions: Functions, names: Iterator[str], source: Path, runtime: str) -> None:
    config = {"className": "shout.process", "inputs": ["in"], "output": "out", "runtimeEnv": runtime}
    for name in names:
        functions.create(name, source, config).raise_for_status()
        wait_for(lambda name=name: functions.status(name)["running"], f"{name} running")  # type: ignore[misc]
        functions.delete(name)


def _held(standalone: Server) -> Held:
    processes = [psutil.Process(standalone.pid), *descendants(standalone.pid)]
    named = {f"{process.pid} {_title(process)}": process for process in processes}
    data = standalone.directory / "data"
    kept = frozenset(str(file.relative_to(data)) for file in data.rglob("*"))
    return Held(
        {name: process.memory_full_info().uss // 1024 for name, process in named.items()},
        {name: process.num_fds() for name, process in named.items()},
        {name: process.num_threads() for name, process in named.items()},
        kept,
        frozenset(
            name
            for namespace in ("public/default", "public/functions")
            for name in httpx.get(f"{standalone.web_url}/admin/v2/persistent/{namespace}").raise_for_status().json()
        ),
    )


def _title(process: psutil.Process) -> str:
    return " ".join(process.cmdline())[-60:].strip()


def _as_calm(standalone: Server, before: Held) -> Held | None:
    """What is held once no instance is left, nor anything in the data directory that has a function's name.

    A deleted instance takes a moment to end, and so does the removal of its log.
    """
    now = _held(standalone)
    if any("gone" in name for name in now.kept) or not now.memory_kib.keys() <= before.memory_kib.keys():
        return None
    return now


def _more(before: dict[str, int], after: dict[str, int]) -> int:
    return sum(after.values()) - sum(before.values())


def _metadata_keys(file: Path) -> list[str]:
    with sqlite3.connect(file) as connection:
        (table,) = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchone()
        return [str(row[0]) for row in connection.execute(f"SELECT * FROM {table}")]
