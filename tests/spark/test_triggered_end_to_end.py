"""A Spark function that runs by itself, as a user has it, and its runs after a restart of the whole standalone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.spark.deployed import create, functions, numbers, outputs
from tests.spark.topics import fill
from tests.support.servers import Server, running
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]
CONFIG = "sparkMaster: local[1]\nsparkDriverMemory: 512m\nsparkStartAhead: false\n"
WITHIN_S = 120.0
FUNCTION = "/admin/v3/functions/public/default/self"


def listed(server: Server) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = httpx.get(f"{server.web_url}{FUNCTION}/runs", timeout=30).raise_for_status().json()
    return found


def latest(server: Server) -> dict[str, Any]:
    status = httpx.get(f"{server.web_url}{FUNCTION}/0/status", timeout=30).raise_for_status().json()
    return dict(status.get("run") or {})


def test_a_function_runs_by_itself_and_its_runs_are_shown_after_a_restart(tmp_path: Path) -> None:
    config, code = tmp_path / "functions_worker.yml", tmp_path / "self.py"
    config.write_text(CONFIG)
    code.write_text("def process(message):\n    return f'{message}!'\n")
    options = ("standalone", tmp_path / "server", "--config", str(config))
    with running(*options) as server:
        create(server, "self", code, "process", "--runtime", "spark", "--continuous", "1s").ok()
        fill(server.service_url, "self-in", numbers(0, 20, 5))
        wait_for(lambda: len(outputs(server, "self")) == 20, "outputs of a run that nobody triggered", WITHIN_S)
        wait_for(lambda: latest(server).get("stage") == "done", "the end of the run", WITHIN_S)
        before = listed(server)
        assert [run["number"] for run in before] == list(range(len(before), 0, -1))  # of a batch or more each
        assert {run["stage"] for run in before} == {"done"}
        assert sum(run["rows"] for run in before) == 20
    with running(*options) as server:
        wait_for(lambda: latest(server).get("runId") == before[0]["runId"], "the run of before", WITHIN_S)
        assert listed(server) == before
        shown = functions(server, "runs", "--name", "self").ok().json()
        assert shown == before
        fill(server.service_url, "self-in", numbers(20, 40, 5))
        wait_for(lambda: len(outputs(server, "self")) == 40, "outputs of another run", WITHIN_S)
        wait_for(lambda: latest(server).get("stage") == "done", "the end of the run", WITHIN_S)
        after = listed(server)
        assert after[-len(before) :] == before
        assert [run["number"] for run in after] == list(range(len(after), 0, -1))
        assert sum(run["rows"] for run in after) == 40
        assert sorted(outputs(server, "self")) == sorted(b"%d!" % number for number in range(40))
        functions(server, "delete", "--name", "self").ok()
        create(server, "self", code, "process", "--runtime", "spark").ok()
        assert listed(server) == []
        create(server, "plain", code, "process").ok()
        functions(server, "runs", "--name", "plain").refused("has no runs")
