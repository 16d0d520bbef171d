"""A worker that dies in the middle of a run: the other one finishes it, whether or not somebody waits."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.spark.deployed import create, functions, numbers, outputs, slow_function
from tests.spark.topics import fill
from tests.support.pulsar import own_name
from tests.support.servers import COMMAND, Server, descendants, running, server, survivors
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]
WAIT_S = 250.0
"""Sessions are started one after the other; the machine may be busy."""
MESSAGES = 4_000


class Pair:
    """Two workers beside a broker and a state store."""

    def __init__(self, directory: Path, core: Server, state: Server) -> None:
        self.core = core
        config = directory / "functions_worker.yml"
        config.write_text(
            f"sparkMaster: local[2]\nsparkDriverMemory: 512m\n"
            f"stateStorageServiceUrl: {state.addresses['stateStorageServiceUrl']}\n"
        )
        self.workers = {
            name: server(
                "worker", directory / name, "--worker-id", name, "--config", str(config),
                "--service-url", core.service_url, "--admin-url", core.web_url,
            )
            for name in ("w1", "w2")
        }  # fmt: skip

    def start(self) -> None:
        for worker in self.workers.values():
            worker.start()

    def stop(self) -> None:
        for worker in self.workers.values():
            worker.stop()

    def get(self, path: str) -> Any:
        return httpx.get(f"{self.core.web_url}/admin/v3/functions/public/default/{path}", timeout=60).json()

    def run_of(self, name: str) -> dict[str, Any]:
        return dict(self.get(f"{name}/0/status").get("run") or {})

    def kill_owner(self, name: str) -> str:
        """`kill -9` of the worker that has a function; returns once its host and JVM are gone too."""
        owner = str(self.get(f"{name}/0/status")["workerId"])
        below = descendants(self.workers[owner].pid)
        assert any(one.name() == "java" for one in below)
        self.workers[owner].kill()
        assert survivors(below, 30) == []
        return owner


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    directory = tmp_path_factory.mktemp("pair")
    with running("broker", directory / "core") as core, running("state-store", directory / "state") as state:
        it = Pair(directory, core, state)
        try:
            it.start()
            yield it
        finally:
            it.stop()


@pytest.fixture
def name(pair: Pair, tmp_path: Path) -> str:
    """A function with a backlog, whose calls take long for now."""
    it = own_name("moves")
    create(pair.core, it, slow_function(tmp_path, "moves"), "process", "--runtime", "spark").ok()
    fill(pair.core.service_url, f"{it}-in", numbers(0, MESSAGES, 50))
    (tmp_path / "slow").touch()
    return it


def check_outputs(pair: Pair, name: str) -> None:
    assert sorted(outputs(pair.core, name)) == sorted(b"%d!" % number for number in range(MESSAGES))


def test_who_waits_for_a_run_sees_it_through_the_death_of_its_worker(pair: Pair, name: str, tmp_path: Path) -> None:
    environment = {**os.environ, "MAGNETAR_ADMIN_URL": pair.core.web_url}
    command = [*COMMAND, "functions", "trigger", "--name", name]
    waiting = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        wait_for((tmp_path / "begun").exists, "a call of the function", WAIT_S)
        owner = pair.kill_owner(name)
        (tmp_path / "slow").unlink()
        shown, _ = waiting.communicate(timeout=WAIT_S)
    finally:
        waiting.kill()
        waiting.wait()
    assert waiting.returncode == 0, shown
    assert f"is done: {MESSAGES:,} rows" in shown.splitlines()[-1]
    check_outputs(pair, name)
    assert pair.get(f"{name}/0/status")["workerId"] != owner
    pair.workers[owner].restart()


def test_a_run_for_which_nobody_waits_is_finished_too(pair: Pair, name: str, tmp_path: Path) -> None:
    run_id = functions(pair.core, "trigger", "--name", name, "--no-wait").ok().out.strip()
    wait_for((tmp_path / "begun").exists, "a call of the function", WAIT_S)
    owner = pair.kill_owner(name)
    (tmp_path / "slow").unlink()
    run = wait_for(lambda: (it := pair.run_of(name)).get("stage") == "done" and it, "the end of the run", WAIT_S)
    assert (run["runId"], run["rows"]) == (run_id, MESSAGES)
    check_outputs(pair, name)
    # What has ended is not begun again, wherever the function goes.
    pair.workers[owner].restart()
    owner = pair.kill_owner(name)

    def has_moved() -> bool:
        status = pair.get(f"{name}/0/status")
        return bool(status["running"]) and status["workerId"] != owner

    wait_for(has_moved, "the function on the other worker", WAIT_S)
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        run = pair.run_of(name)
        assert (run["runId"], run["stage"]) == (run_id, "done")
        time.sleep(0.2)
    pair.workers[owner].restart()
