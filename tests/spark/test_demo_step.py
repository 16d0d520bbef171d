"""The demo's Spark step on a few files, and what the demo says where the extra is missing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.test_host_standalone import HIDE
from tests.support.command import COMMAND, call

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(180)]


def test_spark_counts_what_the_process_counted(tmp_path: Path) -> None:
    directory = tmp_path / "demo"
    answer = call("demo", "--directory", str(directory), "--files", "12").ok()
    assert re.search(
        r"^A Spark function counted the same in \d+\.\d s, its start included\.$", answer.out, re.MULTILINE
    )
    assert re.search(r"^run \w+: running, ", answer.err, re.MULTILINE), answer.err
    assert not directory.exists()


def test_the_demo_goes_without_the_extra(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(HIDE.format(name="pyspark"))
    shown = subprocess.run(
        [sys.executable, *COMMAND[1:], "demo", "--directory", str(tmp_path / "demo"), "--files", "2"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    assert "no Spark step: pyspark is not installed; pip install 'magnetar[spark]'" in shown.stderr
    assert "Spark function" not in shown.stdout
