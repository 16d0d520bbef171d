"""Runs that begin by themselves on a standalone, which is stopped and started again between them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from magnetar.cli.functions.functions import runs_table

from tests.spark.deployed import create, functions, numbers, outputs
from tests.spark.topics import fill
from tests.support.servers import Server, running
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]
CONFIG = "sparkMaster: local[2]\nsparkDriverMemory: 512m\n"
START_S = 240.0


def runs(server: Server) -> list[dict[str, Any]]:
    return list(functions(server, "runs", "--name", "f", "-o", "json").ok().json())


def shown(run: dict[str, Any]) -> tuple[str, int]:
    return f"{run['tasksDone']}/{run['tasksTotal']}", run["rows"]


def has(server: Server, count: int) -> bool:
    return sorted(outputs(server, "f")) == sorted(b"%d!" % number for number in range(count))


def test_runs_go_on_and_are_remembered_over_a_restart(tmp_path: Path) -> None:
    config = tmp_path / "functions_worker.yml"
    config.write_text(CONFIG)
    code = tmp_path / "loud.py"
    code.write_text('def process(message):\n    return f"{message}!"\n')
    with running("standalone", tmp_path / "server", "--config", str(config)) as server:
        create(server, "f", code, "process", "--runtime", "spark", "--continuous", "1s").ok()
        assert functions(server, "get", "--name", "f").ok().json()["continuousIntervalMs"] == 1000
        fill(server.service_url, "f-in", numbers(0, 1_000, 10))
        wait_for(lambda: has(server, 1_000), "the outputs of runs that begin by themselves", START_S)
        wait_for(lambda: sum(run["rows"] for run in runs(server)) == 1_000, "the end of the run", START_S)
        before = runs(server)
        assert {run["stage"] for run in before} == {"done"}
        assert runs_table(before).rows[0][3:] == ("done", *shown(before[0]))
        functions(server, "runs", "--name", "no").refused("no doesn't exist")
    with running("standalone", tmp_path / "server", "--config", str(config)) as server:
        assert runs(server)[-len(before) :] == before
        fill(server.service_url, "f-in", numbers(1_000, 3_000, 10))
        wait_for(lambda: has(server, 3_000), "the outputs of runs after the restart", START_S)
        functions(server, "update", "--name", "f", "--backlog-trigger", "3").ok()
        config_now = functions(server, "get", "--name", "f").ok().json()
        assert (config_now.get("continuousIntervalMs"), config_now["backlogTrigger"]) == (None, 3)
        fill(server.service_url, "f-in", numbers(3_000, 3_030, 10))
        wait_for(lambda: has(server, 3_030), "the outputs of a run that three entries begin", START_S)
        functions(server, "delete", "--name", "f").ok()
        create(server, "f", code, "process", "--runtime", "spark").ok()
        assert runs(server) == []
