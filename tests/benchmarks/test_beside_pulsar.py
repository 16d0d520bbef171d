"""What `make bench-pulsar` says when it cannot measure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import java_function
from benchmarks.java_function import FunctionEnded, JavaFunction, running
from tests.connectors.servers import maven
from tests.support.pulsar import STARTER, URL, WEB_URL
from tests.support.servers import ROOT
from tests.support.waiting import wait_for


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, f"no Apache Pulsar: set {STARTER} (make bench-pulsar PULSAR=<starter>), or {URL} and {WEB_URL}"),
        ({URL: "pulsar://127.0.0.1:1"}, f"{URL} and {WEB_URL} go together: {WEB_URL} is missing"),
    ],
)
def test_pulsar_that_is_not_named_is_asked_for(settings: dict[str, str], said: str) -> None:
    clean = {name: value for name, value in os.environ.items() if name not in (STARTER, URL, WEB_URL)}
    command = [sys.executable, "-m", "benchmarks.beside_pulsar", "--quick"]
    done = subprocess.run(
        command, cwd=ROOT, env={**clean, **settings}, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith(said)


@pytest.mark.slow
def test_jvm_that_ends_is_named_with_its_words(tmp_path: Path) -> None:
    maven.require()
    (tmp_path / "pulsar-functions-api-examples-0.jar").write_bytes(b"")
    function = JavaFunction("f", tmp_path, tmp_path)

    def ended() -> FunctionEnded | None:
        try:
            function.check()
        except FunctionEnded as error:
            return error
        return None

    with running(function, "pulsar://127.0.0.1:1", "in", "out"):
        error = wait_for(ended, "end of a JVM without LocalRunner", 30)
    assert str(error).startswith("the JVM of f exited with code 1:\n")
    assert java_function.RUNNER in str(error)


@pytest.mark.slow
def test_starter_that_fails_is_shown_with_its_words_and_no_traceback(tmp_path: Path) -> None:
    starter = tmp_path / "starter"
    starter.write_text("#!/bin/sh\necho no Java here >&2\nexit 3\n")
    starter.chmod(0o755)
    clean = {name: value for name, value in os.environ.items() if name not in (URL, WEB_URL)}
    command = [sys.executable, "-m", "benchmarks.beside_pulsar", "--quick", "--directory", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, env={**clean, STARTER: str(starter)}, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr.startswith("beside_pulsar: no ready file of ")
    assert "no Java here" in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(tmp_path.iterdir()) == [starter]
