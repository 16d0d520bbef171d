"""The example that starts a standalone cluster, in the words of its first lines."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import magnetar
import psutil
import pytest

from tests.spark.deployed import create, functions, numbers, outputs
from tests.spark.topics import fill
from tests.support.ports import Reserved
from tests.support.servers import descendants, running, survivors
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]
EXAMPLE = Path(magnetar.__file__).parent / "examples" / "spark" / "cluster.py"
START_S = 240.0
ENDS_S = 60.0


@pytest.fixture(scope="module")
def ports() -> Reserved:
    return Reserved(1)


@pytest.fixture(scope="module")
def cluster_url(ports: Reserved, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    said = tmp_path_factory.mktemp("example") / "said"
    with said.open("wb") as output:
        process = subprocess.Popen([sys.executable, str(EXAMPLE), str(ports.numbers[0])], stdout=output, stderr=output)
    family: list[psutil.Process] = []
    try:
        wait_for(lambda: "press Ctrl-C" in said.read_text() or process.poll() is not None, "the cluster", START_S)
        url, _, rest = said.read_text().partition(" ")
        assert rest.startswith("with 2 workers"), said.read_text()
        family = descendants(process.pid)
        yield url
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(ENDS_S) == 0
        assert survivors(family, ENDS_S) == []


def test_functions_run_on_it(cluster_url: str, tmp_path: Path) -> None:
    config = tmp_path / "functions_worker.yml"
    config.write_text(f"sparkMaster: {cluster_url}\nsparkDriverMemory: 512m\n")
    code = tmp_path / "where.py"
    code.write_text("import os\n\ndef process(message):\n    return os.environ['SPARK_EXECUTOR_DIRS']\n")
    with running("standalone", tmp_path, "--config", str(config)) as server:
        create(server, "where", code, "process", "--runtime", "spark").ok()
        fill(server.service_url, "where-in", numbers(0, 100, 10))
        assert "is done: 100 rows" in functions(server, "trigger", "--name", "where").ok().out
        assert {b"/local/" in one for one in outputs(server, "where")} == {True}


def test_a_port_that_is_taken_is_said(cluster_url: str, ports: Reserved) -> None:
    second = subprocess.run(
        [sys.executable, str(EXAMPLE), str(ports.numbers[0])],
        capture_output=True, text=True, timeout=START_S, check=False,
    )  # fmt: skip
    assert second.returncode == 1
    [line] = second.stderr.splitlines()
    assert "master terminated: java.net.BindException" in line
    assert f"starting from {ports.numbers[0]}" in line
