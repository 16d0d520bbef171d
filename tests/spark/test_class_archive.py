"""The archive of the JVM's classes: it is used where it fits and is whole, and nothing fails where it is not."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import google_crc32c
import pytest
from magnetar.errors import SparkFailed
from magnetar.spark.build_class_archive import PROGRAM
from magnetar.spark.class_archive import ClassArchive, archive_directory
from magnetar.spark.java import Java, find_java
from magnetar.spark.session import end_jvm, remove_scratch, spark_jars, start_from_archive
from magnetar.spark.session_config import SessionConfig

from tests.spark.test_session import fake_java
from tests.support.waiting import wait_for

pytestmark = pytest.mark.spark
CONTENT = b"classes" * 1000
BUILT_S = 400.0
ENDS_S = 60.0
GATEWAY = """#!/bin/sh
for argument do
  case "$argument" in -XX:SharedArchiveFile=*) exit 1 ;; esac
done
printf '\\000\\000\\001\\000\\000\\000\\000\\003key' > "$_PYSPARK_DRIVER_CONN_INFO_PATH.new"
mv "$_PYSPARK_DRIVER_CONN_INFO_PATH.new" "$_PYSPARK_DRIVER_CONN_INFO_PATH"
exec cat
"""
"""A JVM that has a gateway at once, and ends when it is to take an archive."""


@pytest.fixture
def java(tmp_path: Path) -> Java:
    return find_java({"JAVA_HOME": str(fake_java(tmp_path / "jdk"))})


@pytest.fixture
def archive(tmp_path: Path, java: Java) -> ClassArchive:
    return ClassArchive.of(tmp_path / "archives", java, spark_jars())


def build(archive: ClassArchive, content: bytes = CONTENT) -> Path:
    with archive.building() as path:
        assert path is not None
        path.write_bytes(content)
    found = archive.file()
    assert found is not None
    return found


def test_archives_are_kept_below_the_cache_directory_of_the_user() -> None:
    below = Path("magnetar/spark-classes")
    assert archive_directory({"XDG_CACHE_HOME": "/cache", "HOME": "/home/a"}) == "/cache" / below
    assert archive_directory({"XDG_CACHE_HOME": "not/absolute", "HOME": "/home/a"}) == "/home/a/.cache" / below
    assert archive_directory({}) is None


def test_an_archive_is_for_one_java_and_one_set_of_jars(tmp_path: Path, java: Java, archive: ClassArchive) -> None:
    other = find_java({"JAVA_HOME": str(fake_java(tmp_path / "other", "21"))})
    assert ClassArchive.of(archive.directory, java, spark_jars()) == archive
    assert ClassArchive.of(archive.directory, other, spark_jars()).key != archive.key
    jars = tmp_path / "jars"
    jars.mkdir()
    for jar in spark_jars().glob("*.jar"):
        (jars / jar.name).symlink_to(jar)
    before = ClassArchive.of(archive.directory, java, jars)
    (jars / "more.jar").write_bytes(b"")
    assert ClassArchive.of(archive.directory, java, jars).key != before.key


def test_an_archive_is_used_if_it_is_whole_and_nobody_else_can_write_it(archive: ClassArchive) -> None:
    assert archive.options() == []
    found = build(archive)
    assert archive.options()[0] == f"-XX:SharedArchiveFile={found}"
    assert stat.S_IMODE(found.stat().st_mode) == 0o400
    assert stat.S_IMODE(archive.directory.stat().st_mode) == 0o700
    found.chmod(0o620)
    assert archive.options() == []
    found.chmod(0o600)
    assert archive.options()
    found.write_bytes(CONTENT[:-1] + b"?")
    assert archive.options() == []
    assert not found.exists()
    assert build(archive) == found


def test_one_process_at_a_time_builds_what_is_not_there(archive: ClassArchive) -> None:
    left = archive.directory / "unfinished-1.jsa"
    with archive.building() as path, archive.building() as second:
        assert path is not None
        assert second is None
    assert archive.file() is None  # no JVM has written one
    left.write_bytes(b"half")  # by one that was killed
    build(archive)
    assert not left.exists()
    with archive.building() as again:
        assert again is None


def test_few_archives_of_other_javas_are_kept(archive: ClassArchive) -> None:
    archive.directory.mkdir(parents=True)
    for age in range(5):
        other = archive.directory / f"{age:032x}-{0:08x}.jsa"
        other.touch()
        os.utime(other, (1000 - age, 1000 - age))
    found = build(archive)
    assert sorted(path.name[31] for path in archive.directory.glob("*.jsa") if path != found) == ["0", "1", "2"]


def test_a_directory_that_cannot_be_read_is_no_failure(tmp_path: Path, java: Java) -> None:
    (tmp_path / "archives").write_text("a file")
    assert ClassArchive.of(tmp_path / "archives", java, spark_jars()).options() == []


@pytest.fixture
def cache(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_a_jvm_that_does_not_start_from_the_archive_starts_without(tmp_path: Path, cache: dict[str, str]) -> None:
    home = fake_java(tmp_path / "jdk")
    (home / "bin" / "java").write_text(GATEWAY)
    java = find_java({"JAVA_HOME": str(home)})
    directory = archive_directory(cache)
    assert directory is not None
    archive = ClassArchive.of(directory, java, spark_jars())
    build(archive)
    jvm = start_from_archive(SessionConfig(directory=tmp_path / "spark"), java, cache)
    try:
        assert (jvm.port, jvm.secret, jvm.has_archive) == (256, "key", False)
        assert archive.file() is None
    finally:
        end_jvm(jvm.process)
        remove_scratch(jvm.scratch)
    (home / "bin" / "java").write_text("#!/bin/sh\nexit 3\n")
    build(archive)
    with pytest.raises(SparkFailed, match="exited during startup with code 3"):
        start_from_archive(SessionConfig(directory=tmp_path / "spark"), java, cache)


COUNTED = """
import os, sys
from pathlib import Path
from magnetar.spark.session import open_session
from magnetar.spark.session_config import SessionConfig

directory, log = Path(sys.argv[1]), sys.argv[2]
options = (f"-Xlog:class+load=info:file={log}",)
config = SessionConfig(directory=directory, master="local[1]", heap="512m", jvm_options=options)
with open_session(config, dict(os.environ)) as session:
    assert session.spark.range(3).count() == 3
    print(session.has_archive)
"""
"""Runs a job in a process that has no other session."""


def count(directory: Path, cache: dict[str, str]) -> tuple[bool, bool]:
    """Run a job; return whether the JVM was given an archive, and whether it took classes from it."""
    directory.mkdir(exist_ok=True)
    log = directory / "classes"
    command = [sys.executable, "-P", "-c", COUNTED, str(directory), str(log)]
    done = subprocess.run(command, env=cache, capture_output=True, text=True, timeout=BUILT_S, check=True)
    return done.stdout.strip() == "True", "shared objects file (top)" in log.read_text()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_built_archive_is_taken_and_one_of_rubbish_is_not(tmp_path: Path, cache: dict[str, str]) -> None:
    command = [sys.executable, "-P", "-m", "magnetar.spark.build_class_archive"]
    done = subprocess.run(command, env=cache, capture_output=True, text=True, timeout=BUILT_S, check=True)
    found = Path(done.stdout.strip())
    assert found.parent == archive_directory(cache)
    assert count(tmp_path / "spark", cache) == (True, True)
    name = found.name.partition("-")[0]
    found.unlink()
    (found.parent / f"{name}-{google_crc32c.value(CONTENT):08x}.jsa").write_bytes(CONTENT)
    assert count(tmp_path / "spark", cache) == (True, False)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_building_ends_with_the_parent(tmp_path: Path, cache: dict[str, str]) -> None:
    program = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen({list(PROGRAM)!r})\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], env=cache, stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        wait_for(lambda: jvm_of(child), "the JVM", ENDS_S)
        jvm = jvm_of(child)
    finally:
        parent.kill()
        parent.communicate()
    wait_for(lambda: not Path(f"/proc/{child}").exists(), "the end of the child", ENDS_S)
    wait_for(lambda: not Path(f"/proc/{jvm}").exists(), "the end of its JVM", ENDS_S)


def jvm_of(pid: int) -> int:
    """The JVM below a process, 0 if there is none."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    children = path.read_text().split() if path.exists() else []
    return next((int(one) for one in children if Path(f"/proc/{one}/comm").read_text().strip() == "java"), 0)
