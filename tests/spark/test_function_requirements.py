"""Packages with a requirements.txt: installed from wheels that lie in them, so that no index is asked."""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from magnetar.errors import FunctionLoadError
from magnetar.instance.loading import requirements as loading_requirements
from magnetar.instance.loading.libraries import Libraries
from magnetar.instance.loading.loader import requirements_of
from magnetar.instance.loading.requirements import UNUSED_S, Installer
from magnetar.instance.spec import InstanceSpec
from magnetar.runtime.spark.host_config import SparkConfig
from magnetar.runtime.spark.runtime import SparkRuntime
from magnetar.spark.jobs.user_code import Shipment, WorkerFunction, pack
from magnetar.spark.task_libraries import put_in_place

from tests.spark.functions import Lab, make_spec
from tests.spark.spark_cluster import Master
from tests.support.eventually import until
from tests.support.wheels import unpacked, wheel

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]
SAYS = "import greeting_parts\n\ndef process(value):\n    return f'{greeting_parts.VERSION} {value}'\n"


FRAMES = """
import threading
from pathlib import Path

import greeting_parts
from pyspark.sql.functions import udf

WHERE = Path(__file__).parents[2] / "where"

@udf("string")
def greet(value):
    from greeting_parts import VERSION
    with WHERE.open("a") as file:
        print(Path(greeting_parts.__file__).parents[1], file=file)
    return f"{VERSION} {value}"

def process(df):
    greeted = df.select(greet(df.value.cast("string")).alias("value"))
    version = df.rdd.map(lambda row: greeting_parts.VERSION).first()  # no query, as of SQL
    thread = threading.Thread(target=greeted.collect)
    thread.start()
    thread.join()
    return greeted.selectExpr(f"concat('{greeting_parts.VERSION} {version} ', value) AS value")
"""


def package(directory: Path, version: str, code: str = SAYS) -> Path:
    """Make a package of Pulsar's form; return the directory of its modules."""
    wheel(directory / "deps", version)
    (directory / "requirements.txt").write_text(f"greeting-parts=={version}\n")
    (directory / "src").mkdir()
    (directory / "src" / "user_code.py").write_text(code)
    return directory / "src"


def install(installer: Installer, package: Path) -> Path:
    requirements = requirements_of(package)
    assert requirements is not None
    installed = installer.install(requirements)
    installed.release()
    return installed.directory


@pytest.fixture
def installer(tmp_path: Path) -> Installer:
    return Installer(tmp_path / "installed")


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> Iterator[Libraries]:
    """What this process has, undone at the end."""
    it = Libraries()
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(loading_requirements, "LIBRARIES", it)
    for user in ("user_code", "function_run"):
        monkeypatch.setattr(f"magnetar.spark.jobs.{user}.LIBRARIES", it)
    yield it
    for name in [name for name in sys.modules if name.startswith("greeting_parts")]:
        del sys.modules[name]


def spec_of(directory: Path, package: Path, name: str = "f") -> InstanceSpec:
    nowhere: Any = SimpleNamespace(service_url="", web_url="")
    return make_spec(directory, nowhere, "", "", package=package, name=name)


def test_what_was_installed_is_used_again_and_swept_when_nothing_has_used_it_for_long(
    tmp_path: Path, installer: Installer
) -> None:
    first, second = package(tmp_path / "a", "1.0"), package(tmp_path / "b", "2.0")
    there = install(installer, first)
    assert (there / "greeting_parts" / "__init__.py").is_file()
    (there / "mark").touch()
    long_ago = time.time() - UNUSED_S - 60
    os.utime(there, (long_ago, long_ago))
    assert install(installer, package(tmp_path / "copy", "1.0")) == there  # the wheels are the same, byte by byte
    assert (there / "mark").exists()
    other = install(installer, second)
    assert set(installer.directory.iterdir()) == {there, other}  # it was used just now
    os.utime(there, (long_ago, long_ago))
    (first.parent / "requirements.txt").write_text("greeting-parts\n")
    assert set(installer.directory.iterdir()) == {there, other}
    renewed = install(installer, first)
    assert set(installer.directory.iterdir()) == {other, renewed}


def test_machines_of_two_kinds_that_share_a_directory_do_not_share_what_is_installed(
    tmp_path: Path, installer: Installer, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = package(tmp_path / "a", "1.0")
    here = install(installer, code)
    monkeypatch.setattr("sysconfig.get_platform", lambda: "linux-other")
    assert install(installer, code) != here


@pytest.mark.parametrize(
    ("requirement", "cause"),
    [
        ("greeting-parts==3.0", "No matching distribution found for greeting-parts==3.0;"),
        ("greeting-parts = 1", "Invalid requirement: 'greeting-parts = 1'"),
    ],
)
def test_what_cannot_be_installed_is_told_in_one_line(
    tmp_path: Path, installer: Installer, requirement: str, cause: str
) -> None:
    code = package(tmp_path / "a", "1.0")
    (code.parent / "requirements.txt").write_text(requirement)
    with pytest.raises(FunctionLoadError) as caught:
        install(installer, code)
    text = str(caught.value)
    assert text.startswith(f"cannot install requirements.txt of the package: {cause}"), text
    assert "put wheels for Python 3." in text
    assert "\n" not in text
    assert list(installer.directory.iterdir()) == []


def test_a_python_without_pip_is_named(tmp_path: Path, installer: Installer, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho $0: No module named pip >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(FunctionLoadError) as caught:
        install(installer, package(tmp_path / "a", "1.0"))
    assert str(caught.value) == (
        f"cannot install requirements.txt of the package: {python}: No module named pip; install pip with"
        f" {python} -m ensurepip, or include the modules in the package"
    )


def test_pip_ends_when_its_time_is_over_or_the_function_is_removed(tmp_path: Path) -> None:
    code = package(tmp_path / "a", "1.0")
    with pytest.raises(FunctionLoadError, match=r"package: pip did not finish within 0 s;"):
        install(Installer(tmp_path / "installed", timeout_s=0), code)
    with pytest.raises(FunctionLoadError, match="package: the function was removed meanwhile;"):
        install(Installer(tmp_path / "installed", is_wanted=lambda: False), code)
    assert list((tmp_path / "installed").iterdir()) == []


def test_two_versions_in_one_process_are_refused_until_one_is_given_up(tmp_path: Path, libraries: Libraries) -> None:
    one, two = (unpacked(tmp_path / version, version) for version in ("1.0", "2.0"))
    libraries.use("public/default/f", one)
    libraries.use("public/default/same", one)
    assert sys.path[-1] == str(one)
    assert importlib.import_module("greeting_parts").VERSION == "1.0"
    with pytest.raises(FunctionLoadError) as caught:
        libraries.use("public/default/g", two)
    assert str(caught.value) == (
        "function public/default/g requires greeting-parts 2.0, but function public/default/f loaded"
        " greeting-parts 1.0 into the same process: require the same version in both, or include its modules in one"
        " of the packages"
    )
    assert str(two) not in sys.path
    libraries.release("public/default/same")
    libraries.use("public/default/f", two)  # an update
    assert str(one) not in sys.path
    assert importlib.import_module("greeting_parts").VERSION == "2.0"
    libraries.use("public/default/h", one, displaces=True)
    assert importlib.import_module("greeting_parts").VERSION == "1.0"
    assert not libraries.has("public/default/f", two)


def test_what_the_environment_has_in_another_version_is_refused(tmp_path: Path, libraries: Libraries) -> None:
    with pytest.raises(FunctionLoadError) as caught:
        libraries.use("public/default/f", unpacked(tmp_path, "0.0.1", "pytest"))
    text = str(caught.value)
    assert text.startswith("function public/default/f requires pytest 0.0.1, but the Python environment at ")
    assert f"has pytest {pytest.__version__}, which takes precedence: require pytest=={pytest.__version__}, or " in text


def test_extension_modules_that_are_loaded_are_not_replaced(
    tmp_path: Path, libraries: Libraries, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (unpacked(tmp_path / version, version) for version in ("1.0", "2.0"))
    libraries.use("f", one)
    loaded = SimpleNamespace(__file__=str(one / "greeting_parts" / "fast.abi3.so"))
    monkeypatch.setitem(sys.modules, "greeting_parts.fast", loaded)
    with pytest.raises(FunctionLoadError, match=r"modules of greeting-parts 1\.0 are loaded .*: restart the worker$"):
        libraries.use("f", two)
    assert libraries.is_here(one)


def test_the_archive_brings_them_to_an_executor(tmp_path: Path, installer: Installer, libraries: Libraries) -> None:
    code = package(tmp_path / "driver", "1.0")
    spec = spec_of(tmp_path / "f", code)
    shipment = Shipment(spec.to_json(), pack(code, False, install(installer, code)), 0, writes_log=False)
    for left in (code.parent, installer.directory):
        left.rename(tmp_path / f"gone-{left.name}")  # of another machine
    executor = tmp_path / "executor"
    executor.mkdir()
    function = WorkerFunction(shipment, executor)
    try:
        assert function.is_in_place()
        assert Path(sys.modules["greeting_parts"].__file__ or "").is_relative_to(executor)
        changed = package(tmp_path / "later", "2.0")
        libraries.use("other", install(installer, changed), displaces=True)
        assert not function.is_in_place()
    finally:
        function.close()
    assert pack(changed, False).digest != pack(changed, False, install(installer, changed)).digest


def test_modules_at_the_root_lie_beside_the_requirements_and_wheels_stay(tmp_path: Path, installer: Installer) -> None:
    src = package(tmp_path / "a", "1.0")
    root = tmp_path / "root"
    src.rename(root)
    for name in ("requirements.txt", "deps"):
        (src.parent / name).rename(root / name)
    assert requirements_of(root) == root / "requirements.txt"
    shipped = pack(root, False, install(installer, root))
    (tmp_path / "executor").mkdir()
    arrived = shipped.arrive(tmp_path / "executor")
    assert sorted(file.name for file in arrived.iterdir()) == ["requirements.txt", "user_code.py"]
    assert shipped.libraries_beside(arrived) == arrived.parent / ".requirements"


async def test_the_status_says_what_is_waited_for_and_what_failed(tmp_path: Path) -> None:
    code = package(tmp_path / "a", "1.0")
    (code.parent / "requirements.txt").write_text("greeting-parts==3.0")
    spec = spec_of(tmp_path / "f", code)
    spec = InstanceSpec(**(vars(spec) | {"state_url": "bk://127.0.0.1:1"}))
    runtime = SparkRuntime(SparkConfig(data_dir=tmp_path / "data", master="local[2]", starts_ahead=False))
    try:
        instance = await runtime.start(spec)
        status = await instance.status()
        assert not status.running
        assert status.failureException.startswith("waiting for pip to install the package's requirements.txt")

        async def has_failed() -> bool:
            return "No matching distribution" in (await instance.status()).failureException

        await until(has_failed)
    finally:
        await runtime.close()


async def test_a_function_that_is_removed_while_pip_runs_takes_no_host_with_it(tmp_path: Path) -> None:
    spec = spec_of(tmp_path / "f", package(tmp_path / "a", "1.0"))
    spec = InstanceSpec(**(vars(spec) | {"state_url": "bk://127.0.0.1:1"}))
    runtime = SparkRuntime(SparkConfig(data_dir=tmp_path / "data", master="local[2]", starts_ahead=False))
    installed = tmp_path / "data" / "spark" / "requirements"
    try:
        instance = await runtime.start(spec)
        host = runtime.host_pid

        async def pip_runs() -> bool:
            return installed.is_dir() and any(installed.iterdir())

        await until(pip_runs)
        await instance.stop(30)
        assert (await instance.wait(), runtime.host_pid) == ("", host)
        assert psutil.pid_exists(host)
        assert list(installed.iterdir()) == []
    finally:
        await runtime.close()


def test_a_run_uses_what_was_installed(lab: Lab, tmp_path: Path, libraries: Libraries) -> None:
    installer = Installer(tmp_path / "installed")
    function = lab.function("", package=package(tmp_path / "code", "1.0"), installer=installer)
    lab.fill([[b"a"], [b"b"]])
    end = lab.run(function)
    assert end.stage == "done", end.error
    assert sorted(lab.outputs()) == [b"1.0 a", b"1.0 b"]
    assert libraries.has(function.spec.function_name, function.libraries)
    function.close()
    assert libraries.has(function.spec.function_name, None)


def test_a_dataframe_function_finds_them_in_the_driver_and_in_what_spark_calls(
    lab: Lab, master: Master, tmp_path: Path, libraries: Libraries
) -> None:
    installer, outputs = Installer(tmp_path / "installed"), []
    for version in ("1.0", "2.0"):  # the workers that have loaded the first are there when the second comes
        function = lab.function("", package=package(tmp_path / version, version, FRAMES), installer=installer)
        lab.fill([[b"a"], [b"b"]])
        end = lab.run(function, version)
        assert end.stage == "done", end.error
        outputs += [f"{version} {version} {version} {value}".encode() for value in ("a", "b")]
        assert sorted(lab.outputs()) == outputs
        for place in (tmp_path / "where").read_text().splitlines():
            assert Path(place).is_relative_to(installer.directory) is (master.cluster is None)
        function.close()
    other = lab.function("", package=package(tmp_path / "3.0", "3.0", FRAMES), installer=installer, name="other")
    with pytest.raises(FunctionLoadError, match=r"requires greeting-parts 4\.0, but function public/default/other "):
        lab.function("", package=package(tmp_path / "4.0", "4.0", FRAMES), installer=installer)
    other.close()


def test_what_an_executor_was_not_sent_is_told(tmp_path: Path) -> None:
    with pytest.raises(
        FunctionLoadError,
        match=rf"of function f are not in {tmp_path}/gone: trigger the function"
        r" again",
    ):
        put_in_place(json.dumps({"function": "f", "directory": str(tmp_path / "gone")}))
