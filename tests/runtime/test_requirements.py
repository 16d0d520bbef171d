"""The requirements.txt of a package of process functions: installed once, shared, and removed when unneeded."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import zipfile
from collections.abc import AsyncIterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
from magnetar.client.client import AsyncClient
from magnetar.client.config import ConsumerConfig
from magnetar.errors import FunctionLoadError
from magnetar.instance.loading.requirements import Installer
from magnetar.runtime.interface import Runtime
from magnetar.runtime.manager import InstanceEnvironment, RuntimeManager
from magnetar.runtime.process.runtime import ProcessRuntime
from magnetar.runtime.requirements import Installations, lasting_installer
from magnetar.runtime.thread.runtime import ThreadRuntime
from magnetar.wire import functions_pb2 as records

from tests.support.eventually import until
from tests.support.instances import MakeSpec
from tests.support.servers import Server
from tests.support.wheels import wheel

SAYS = "import greeting_parts\n\ndef process(x):\n    return f'{greeting_parts.VERSION} {x}'\n"


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that pip takes wheels from, and no index."""
    wheel(tmp_path / "wheels", "1.0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    return tmp_path / "wheels"


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What was installed so far."""
    done: list[Path] = []
    run_pip = Installer._run_pip

    def counted(self: Installer, requirements: Path, target: Path, lock: int) -> None:
        done.append(requirements)
        run_pip(self, requirements, target, lock)

    monkeypatch.setattr(Installer, "_run_pip", counted)
    return done


@pytest.fixture
async def manager(server: Server, tmp_path: Path) -> AsyncIterator[RuntimeManager]:
    around = InstanceEnvironment(
        worker_id="w-1", service_url=server.service_url, admin_url="", data_dir=tmp_path / "data"
    )

    async def fetch(location: records.PackageLocationMetaData) -> Path:
        return Path(location.packagePath)

    runtimes: dict[str, Runtime] = {"process": ProcessRuntime(), "thread": ThreadRuntime(server.service_url)}
    manager = RuntimeManager(runtimes, fetch, around)
    yield manager
    await manager.close()


def assignment(make_spec: MakeSpec, name: str, requirements: str, runtime: str = "process") -> records.Assignment:
    spec = make_spec(SAYS, name=name)
    spec.metadata.functionDetails.customRuntimeOptions = json.dumps({"runtimeEnv": runtime})
    (spec.package / "requirements.txt").write_text(requirements)
    spec.metadata.packageLocation.packagePath = str(spec.package)
    return records.Assignment(instance=records.Instance(functionMetaData=spec.metadata), workerId="w-1")


async def test_two_functions_share_what_was_installed_once_and_later_without_an_index(
    manager: RuntimeManager,
    client: AsyncClient,
    make_spec: MakeSpec,
    topic: str,
    wheels: Path,
    runs: list[Path],
    tmp_path: Path,
) -> None:
    consumer = await client.subscribe(f"{topic}-out", "test", ConsumerConfig(initial_position="Earliest"))
    producer = await client.create_producer(f"{topic}-in")
    both = {f"public/default/{name}:0": assignment(make_spec, name, "greeting-parts==1.0") for name in "fg"}
    await manager.apply(both)

    async def is_told() -> bool:
        status = await manager.status("public/default/f:0")
        return status.failureException.startswith("installing the requirements of public/default/f listed in")

    await until(is_told)

    async def are_running() -> bool:
        return all([(await manager.status(key)).running for key in both])

    await until(are_running)
    assert len(runs) == 1
    await producer.send(b"a")
    assert [(await consumer.receive(30)).data for _ in both] == [b"1.0 a"] * 2

    installer = lasting_installer(tmp_path / "data")
    installer.remove_others(())
    assert len(list(installer.directory.iterdir())) == 1, "removed while in use"
    await manager.apply({})
    shutil.rmtree(wheels)
    await manager.apply(both)
    await until(are_running)
    assert len(runs) == 1
    await manager.apply({})

    async def is_removed() -> bool:
        installer.remove_others(())
        return not list(installer.directory.iterdir())

    await until(is_removed)


async def test_threads_of_one_process_have_versions_of_their_own(
    manager: RuntimeManager, client: AsyncClient, make_spec: MakeSpec, topic: str, wheels: Path
) -> None:
    # As libraries do it: by their own names, and what they say of themselves is found by either name.
    text = "import importlib.metadata\nfrom greeting_parts.number import VERSION\n"
    text += "assert VERSION == importlib.metadata.version('greeting-parts') == importlib.metadata.version(__name__)\n"
    parts = {"greeting_parts/__init__.py": text}
    for version in ("2.0", "2.1"):
        number = {"greeting_parts/number.py": f"import json\nVERSION = str(json.loads('{version}'))\n"}
        wheel(wheels, version, **parts, **number)
    consumer = await client.subscribe(f"{topic}-out", "test", ConsumerConfig(initial_position="Earliest"))
    producer = await client.create_producer(f"{topic}-in")
    await manager.apply(
        {
            f"public/default/{name}:0": assignment(make_spec, name, f"greeting-parts=={version}", "thread")
            for name, version in (("f", "2.0"), ("g", "2.1"))
        }
    )
    await producer.send(b"a")
    assert sorted([(await consumer.receive(30)).data for _ in "fg"]) == [b"2.0 a", b"2.1 a"]
    assert "greeting_parts" not in sys.modules


async def test_threads_refuse_requirements_that_are_not_python_alone(
    manager: RuntimeManager, make_spec: MakeSpec, wheels: Path
) -> None:
    wheel(wheels, "2.0", **{f"greeting_parts/fast{EXTENSION_SUFFIXES[0]}": "machine code"})
    await manager.apply({"public/default/f:0": assignment(make_spec, "f", "greeting-parts==2.0", "thread")})

    async def has_failed() -> bool:
        reason = (await manager.status("public/default/f:0")).failureException
        return (
            f"include the extension module greeting_parts/fast{EXTENSION_SUFFIXES[0]}, but functions in threads"
            in reason
        )

    await until(has_failed)


async def test_what_cannot_be_installed_is_named_in_status(
    manager: RuntimeManager, make_spec: MakeSpec, wheels: Path
) -> None:
    await manager.apply({"public/default/f:0": assignment(make_spec, "f", "greeting-parts==3.0")})

    async def has_failed() -> bool:
        status = await manager.status("public/default/f:0")
        return (
            "FunctionLoadError: cannot install requirements.txt of the package: No matching distribution found for"
            " greeting-parts==3.0; fix it, put wheels for Python"
        ) in status.failureException

    await until(has_failed)


async def test_what_the_environment_has_in_another_version_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(tmp_path / "wheels", "0.0.1", "pytest")
    monkeypatch.setattr(Installer, "_run_pip", unpack)
    (tmp_path / "requirements.txt").write_text("pytest==0.0.1")
    installations = Installations(lasting_installer(tmp_path / "data"))
    with pytest.raises(
        FunctionLoadError, match=r"function t/n/f requires pytest 0\.0\.1, but .* which takes precedence"
    ):
        await installations.of("t/n/f", tmp_path, lambda _: None)
    assert await installations.of("t/n/f", tmp_path / "wheels", lambda _: None) is None


def unpack(_: Installer, requirements: Path, target: Path, lock: int) -> None:
    """As pip, of all wheels beside the requirements."""
    for found in (requirements.parent / "wheels").iterdir():
        with zipfile.ZipFile(found) as archive:
            archive.extractall(target)


KILLED = """
import sys
from pathlib import Path
from magnetar.instance.loading.requirements import Installer
sys.executable = sys.argv[1]
Installer(Path(sys.argv[2])).install(Path(sys.argv[3]))
"""
HALF = """#!/bin/sh
while [ "$1" != --target ]; do shift; done
echo half > "$2/half.py"
echo $$ > "$2.pid"
exec sleep 60
"""


async def test_an_installation_that_is_killed_leaves_nothing_that_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Installer, "_run_pip", unpack)
    wheel(tmp_path / "wheels", "1.0")
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("greeting-parts")
    slow = tmp_path / "python"
    slow.write_text(HALF)
    slow.chmod(0o755)
    there = tmp_path / "installed"
    killed = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, str(slow), str(there), str(requirements)
    )
    written = there / f".fresh-{Installer(there).target_of(requirements).name}.pid"
    try:

        async def is_at_it() -> bool:
            return written.is_file() and bool(written.read_text().strip())

        await until(is_at_it)
    finally:
        killed.kill()
        await killed.wait()
    orphan = int(written.read_text())
    try:
        assert Installer(there).find(requirements) is None
        with pytest.raises(FunctionLoadError, match="another process has been installing it"):
            Installer(there, timeout_s=0).install(requirements)
        Installer(there).remove_others(())
        assert written.with_suffix("").joinpath("half.py").is_file(), "taken from pip, which still writes"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(orphan, signal.SIGKILL)
    written.unlink()
    installed = Installer(there).install(requirements)
    assert sorted(file.name for file in installed.directory.iterdir()) == [
        "greeting_parts",
        "greeting_parts-1.0.dist-info",
    ]
    Installer(there).remove_others(())
    assert installed.directory.is_dir(), "removed while in use"
    installed.release()
    Installer(there).remove_others(())
    assert list(there.iterdir()) == []
