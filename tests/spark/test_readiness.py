"""What this machine lacks for Spark is told in one line, before anything is started. No Spark."""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from importlib import metadata, util
from pathlib import Path
from typing import NamedTuple

import magnetar
import pytest
from magnetar.errors import InvalidConfig, SparkFailed
from magnetar.spark.session import check_ready
from magnetar.spark.source import requirements

pytestmark = pytest.mark.spark


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def refusal(master: str = "local[2]", environment: dict[str, str] | None = None, directory: Path | None = None) -> str:
    with pytest.raises((InvalidConfig, SparkFailed)) as error:
        check_ready(master, environment, directory)
    text = str(error.value)
    assert "\n" not in text
    return text


def java_home(directory: Path, version: str) -> Path:
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (directory / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="java.base java.se"\n')
    return directory


def test_a_java_that_is_too_old_is_named(tmp_path: Path) -> None:
    home = java_home(tmp_path / "jdk-11", "11.0.22")
    text = refusal(environment={"JAVA_HOME": str(home)})
    assert text.startswith(
        f"the Java from JAVA_HOME in {home} is version 11, but Spark requires 17 or newer: set JAVA_HOME"
    )
    check_ready("local[2]", {"JAVA_HOME": str(java_home(tmp_path / "jdk-21", "21.0.8"))})


def test_a_java_home_that_is_none_is_named(tmp_path: Path) -> None:
    text = refusal(environment={"JAVA_HOME": str(tmp_path / "nothing")})
    assert f"JAVA_HOME points to {tmp_path / 'nothing'}" in text
    assert "correct JAVA_HOME" in text


@pytest.mark.parametrize(
    ("package", "found", "wanted"),
    [
        ("pyspark", "3.5.1", "but 4.0 or newer, before 5 is required"),
        ("pyspark", "5.0.0", "but 4.0 or newer, before 5 is required"),
        ("pandas", "3.0.1", "but 2.2 or newer, before 3 is required"),
        ("pyarrow", "17.0.0", "but 18 or newer is required"),
    ],
)
def test_a_package_of_another_version_is_named(
    monkeypatch: pytest.MonkeyPatch, package: str, found: str, wanted: str
) -> None:
    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: found if name == package else real(name))
    assert refusal() == f"{package} {found} is installed, {wanted}: run pip install 'magnetar[spark]'"


@pytest.mark.parametrize("package", ["pyspark", "pandas", "pyarrow"])
def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    real = util.find_spec
    monkeypatch.setattr(requirements, "find_spec", lambda name: None if name == package else real(name))
    assert refusal() == f"{package} is not installed: run pip install 'magnetar[spark]'"


def test_the_bounds_are_those_of_the_extra() -> None:
    project = tomllib.loads((Path(magnetar.__file__).parent / "pyproject.toml").read_text())
    extra = project["project"]["optional-dependencies"]["spark"]
    for package, (first, end) in requirements.VERSIONS.items():
        text = f"{package}>={'.'.join(map(str, first))}" + (f",<{'.'.join(map(str, end))}" if end else "")
        assert text in extra


@pytest.mark.parametrize(
    ("master", "text"),
    [
        (
            "mesos://a:1",
            "Spark master 'mesos://a:1' is not supported: expected local[N], local[*], spark://host:port, ",
        ),
        ("sc://a:1", "Spark master 'sc://a:1' is a server of Spark Connect: functions require their own driver"),
        ("yarn", "HADOOP_CONF_DIR and YARN_CONF_DIR do not name an existing directory: /nonexistent; set one of them"),
        ("k8s://127.0.0.1:1", "Kubernetes did not answer (127.0.0.1:1: [Errno 111] Connection refused)"),
        ("spark://127.0.0.1:1", "no Spark master answered (127.0.0.1:1: [Errno 111] Connection refused)"),
    ],
)
def test_a_master_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, master: str, text: str) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", "/nonexistent")
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    assert text in refusal(master)


def test_a_directory_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    text = refusal(directory=tmp_path / "data" / "spark")
    assert text.startswith(f"Spark cannot write to {tmp_path / 'data' / 'spark'}: Not a directory; ")
    assert "data: it is not a directory; " in refusal(directory=tmp_path / "data")
    directory = tmp_path / "closed"
    directory.mkdir(mode=0o500)
    if not os.access(directory, os.W_OK):  # root may write everywhere
        assert "Permission denied" in refusal(directory=directory)


def test_a_disk_that_is_full_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**9, 10**9, 3 * 1024**2))
    text = refusal(directory=tmp_path / "spark")
    assert re.fullmatch(r"only 3 MB are free in \S+, but Spark requires at least 64 MB: free some space or .*", text)
