"""The demo's Spark step on a few files, and what the demo says where the extra is missing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.test_host_end_to_end import HIDE
from tests.support.servers import COMMAND

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


def demo(directory: Path, files: int, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *COMMAND[1:], "demo", "--directory", str(directory / "demo"), "--files", str(files)],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=540, check=False,
    )  # fmt: skip


def test_spark_counts_what_the_process_counted(tmp_path: Path) -> None:
    shown = demo(tmp_path, 12)
    assert shown.returncode == 0, shown.stderr
    said = r"^A Spark function got the same counts in \d+\.\d s, including its start\.$"
    assert re.search(said, shown.stdout, re.MULTILINE), shown.stdout
    assert re.search(r"^run \w+: running, ", shown.stderr, re.MULTILINE), shown.stderr
    assert not (tmp_path / "demo").exists()


def test_the_demo_goes_without_the_extra(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(HIDE.format(name="pyspark"))
    shown = demo(tmp_path, 2, PYTHONPATH=str(tmp_path))
    assert shown.returncode == 0, shown.stderr
    assert "skipping the Spark step: pyspark is not installed: run pip install 'magnetar[spark]'" in shown.stderr
    assert "Spark function" not in shown.stdout
