"""The runtime manager: what runs is what the assignments say, whatever dies."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest
from magnetar.client.client import AsyncClient
from magnetar.client.config import ConsumerConfig
from magnetar.errors import StorageError
from magnetar.instance.logs.file import tail
from magnetar.runtime.interface import Runtime
from magnetar.runtime.manager import InstanceEnvironment, RuntimeManager
from magnetar.runtime.process.runtime import ProcessRuntime
from magnetar.runtime.thread.runtime import ThreadRuntime
from magnetar.wire import functions_pb2 as records

from tests.support.calm import Calm
from tests.support.eventually import until
from tests.support.instances import MakeSpec
from tests.support.servers import Server

EARLIEST = ConsumerConfig(initial_position="Earliest")
KEY = "public/default/f:0"


async def fetch(location: records.PackageLocationMetaData) -> Path:
    if location.packagePath == "damaged":
        raise StorageError("package damaged: 3 of 5 bytes")
    return Path(location.packagePath)


@pytest.fixture
async def manager(server: Server, tmp_path: Path) -> AsyncIterator[RuntimeManager]:
    around = InstanceEnvironment(
        worker_id="w-1", service_url=server.service_url, admin_url="", data_dir=tmp_path / "data"
    )
    runtimes: dict[str, Runtime] = {"process": ProcessRuntime(), "thread": ThreadRuntime(server.service_url)}
    manager = RuntimeManager(runtimes, fetch, around)
    yield manager
    await manager.close()


MakeAssignment = Callable[..., records.Assignment]


@pytest.fixture
def make_assignment(make_spec: MakeSpec) -> MakeAssignment:
    def make(
        code: str,
        runtime: str = "process",
        version: int = 0,
        state: int = records.RUNNING,
        package: str = "",
        name: str = "f",
    ) -> records.Assignment:
        spec = make_spec(code, customRuntimeOptions=f'{{"runtimeEnv": "{runtime}"}}', name=name)
        metadata = spec.metadata
        metadata.version = version
        metadata.packageLocation.packagePath = package or str(spec.package)
        metadata.instanceStates[0] = state  # type: ignore[assignment]
        return records.Assignment(instance=records.Instance(functionMetaData=metadata), workerId="w-1")

    return make


async def running(manager: RuntimeManager, key: str = KEY) -> None:
    async def is_running() -> bool:
        return (await manager.status(key)).running

    await until(is_running)


async def failed(manager: RuntimeManager, text: str) -> records.FunctionStatus:
    async def has_failed() -> bool:
        return text in (await manager.status(KEY)).failureException

    await until(has_failed)
    return await manager.status(KEY)


def process_of(title: str) -> psutil.Process | None:
    """The living process below this one with that title."""
    for process in psutil.Process().children(recursive=True):
        try:
            if process.cmdline()[:1] == [title] and process.status() != psutil.STATUS_ZOMBIE:
                return process
        except psutil.NoSuchProcess:
            continue
    return None


ECHO = "def process(x): return x"


@pytest.mark.parametrize("runtime", ["process", "thread"])
async def test_instances_follow_the_assignments(
    manager: RuntimeManager, client: AsyncClient, make_assignment: MakeAssignment, topic: str, runtime: str
) -> None:
    consumer = await client.subscribe(f"{topic}-out", "test", EARLIEST)
    producer = await client.create_producer(f"{topic}-in")
    await manager.apply({KEY: make_assignment("def process(x): return 'first ' + x", runtime)})
    await producer.send(b"a")
    assert (await consumer.receive(30)).data == b"first a"
    await manager.apply({KEY: make_assignment("def process(x): return 'second ' + x", runtime, version=1)})
    await producer.send(b"b")
    assert (await consumer.receive(30)).data in (b"first b", b"second b")
    await running(manager)
    status = await manager.status(KEY)
    assert (status.instanceId, status.workerId, status.numRestarts) == ("0", "w-1", 0)

    await manager.apply({KEY: make_assignment(ECHO, runtime, version=2, state=records.STOPPED)})
    await producer.send(b"c")

    async def is_stopped() -> bool:
        return not (await manager.status(KEY)).running and process_of(f"magnetar instance {KEY}") is None

    await until(is_stopped)
    assert (await manager.status(KEY)).failureException == ""
    assert (await manager.metrics(KEY)).receivedTotal == 0
    await manager.apply({KEY: make_assignment(ECHO, runtime, version=3)})
    assert (await consumer.receive(30)).data == b"c"
    await manager.apply({})
    await until(is_gone(manager))


def is_gone(manager: RuntimeManager) -> Callable[[], asyncio.Future[bool]]:
    async def ask() -> bool:
        try:
            await manager.status(KEY)
        except KeyError:
            return process_of(f"magnetar instance {KEY}") is None
        return False

    return ask  # type: ignore[return-value]


async def test_same_assignments_change_nothing(manager: RuntimeManager, make_assignment: MakeAssignment) -> None:
    assignment = make_assignment(ECHO)
    await manager.apply({KEY: assignment})
    await running(manager)
    before = process_of(f"magnetar instance {KEY}")
    await manager.apply({KEY: records.Assignment.FromString(assignment.SerializeToString())})
    await running(manager)
    assert process_of(f"magnetar instance {KEY}") == before


async def test_killed_instance_runs_again_and_loses_nothing(
    manager: RuntimeManager, client: AsyncClient, make_assignment: MakeAssignment, topic: str
) -> None:
    await manager.apply({KEY: make_assignment(ECHO)})
    producer = await client.create_producer(f"{topic}-in")
    sent: set[bytes] = set()
    for round_number in range(2):
        await running(manager)
        before = process_of(f"magnetar instance {KEY}")
        assert before is not None
        for number in range(200):
            data = b"%d-%d" % (round_number, number)
            sent.add(data)
            producer.send_nowait(data)
            if number == 100:
                os.kill(before.pid, signal.SIGKILL)
                killed = Calm()

        async def is_another(old: psutil.Process = before) -> bool:
            return process_of(f"magnetar instance {KEY}") not in (None, old)

        await until(is_another)
        await running(manager)
        assert killed.calm_s < 2, killed
    assert (await manager.status(KEY)).numRestarts == 2
    consumer = await client.subscribe(f"{topic}-out", "test", EARLIEST)
    received: set[bytes] = set()
    while received != sent:
        received.add((await consumer.receive(30)).data)


async def test_function_that_cannot_start_says_why_and_is_tried_again(
    manager: RuntimeManager, make_assignment: MakeAssignment
) -> None:
    assignment = make_assignment("raise LookupError('first attempt')")
    began = Calm()
    await manager.apply({KEY: assignment})
    status = await failed(manager, "LookupError: first attempt")
    assert began.calm_s < 2, began
    assert "Traceback" in status.failureException
    assert not status.running
    package = Path(assignment.instance.functionMetaData.packageLocation.packagePath)
    (package / "user_code.py").write_text(ECHO)
    shutil.rmtree(package / "__pycache__", ignore_errors=True)
    await running(manager)
    status = await manager.status(KEY)
    assert status.numRestarts >= 1
    assert status.failureException == ""
    assert "first attempt" in status.latestSystemExceptions[-1].exceptionString
    assert "first attempt" in (await manager.status(KEY)).latestSystemExceptions[-1].exceptionString, (
        "forgotten when asked"
    )
    assert "first attempt" in manager.log_file(KEY).read_text()


async def test_unreadable_package_is_named_in_status(manager: RuntimeManager, make_assignment: MakeAssignment) -> None:
    await manager.apply({KEY: make_assignment(ECHO, package="damaged")})
    status = await failed(manager, "StorageError: package damaged: 3 of 5 bytes")
    assert not status.running


async def test_restart_starts_anew(manager: RuntimeManager, make_assignment: MakeAssignment) -> None:
    await manager.apply({KEY: make_assignment(ECHO)})
    await running(manager)
    before = process_of(f"magnetar instance {KEY}")
    await manager.restart(KEY)
    await running(manager)
    assert process_of(f"magnetar instance {KEY}") not in (None, before)
    assert (await manager.status(KEY)).numRestarts == 0
    with pytest.raises(KeyError):
        await manager.restart("public/default/other:0")


STUCK = "import pathlib\ndef process(x):\n    while not pathlib.Path(x).exists(): pass"


async def test_abandoned_thread_is_named_in_status(
    manager: RuntimeManager,
    client: AsyncClient,
    make_assignment: MakeAssignment,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("magnetar.runtime.manager.STOP_GRACE_S", 0.2)
    producer = await client.create_producer(f"{topic}-in")
    await producer.send(str(tmp_path / "go").encode())
    await manager.apply({KEY: make_assignment(STUCK, "thread")})

    async def is_at_work() -> bool:
        return (await manager.metrics(KEY)).receivedTotal == 1

    await until(is_at_work)
    await manager.apply({KEY: make_assignment(ECHO, "thread", version=1)})
    await running(manager)
    status = await manager.status(KEY)
    (tmp_path / "go").touch()
    assert "was abandoned" in status.latestSystemExceptions[0].exceptionString


async def test_two_thread_functions_with_their_own_util(
    manager: RuntimeManager, client: AsyncClient, make_spec: MakeSpec, topic: str
) -> None:
    """As the issue asks: both in one worker, and an import after both have started."""
    assignments = {}
    for name in ("one", "two"):
        code = {
            "user_code.py": "import util\ndef process(x):\n    import late, importlib\n"
            "    return util.NAME + late.NAME + importlib.import_module('util').NAME",
            "util.py": f"NAME = {name!r}",
            "late.py": f"NAME = {name!r}",
        }
        source = records.SourceSpec(subscriptionName=name)
        source.inputSpecs[f"{topic}-in"].SetInParent()
        options = '{"runtimeEnv": "thread"}'
        sink = {"topic": f"{topic}-{name}"}
        spec = make_spec(code, name=name, customRuntimeOptions=options, source=source, sink=sink)
        spec.metadata.packageLocation.packagePath = str(spec.package)
        instance = records.Instance(functionMetaData=spec.metadata)
        assignments[f"public/default/{name}:0"] = records.Assignment(instance=instance, workerId="w-1")
    await manager.apply(assignments)
    for key in assignments:
        await running(manager, key)
    producer = await client.create_producer(f"{topic}-in")
    await producer.send(b"x")
    for name in ("one", "two"):
        consumer = await client.subscribe(f"{topic}-{name}", "test", EARLIEST)
        assert (await consumer.receive(30)).data == (name * 3).encode()
    assert not {"util", "late"} & set(sys.modules)


@pytest.mark.parametrize("tmpdir", ["", "t" * 120])
def test_long_data_directory_gets_short_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmpdir: str) -> None:
    if tmpdir:  # as where TMPDIR is below a directory of a test run
        (tmp_path / tmpdir).mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / tmpdir))
    around = InstanceEnvironment(
        worker_id="w", service_url="pulsar://x:1", admin_url="", data_dir=tmp_path / ("d" * 120)
    )
    manager = RuntimeManager({}, fetch, around)
    made = str(manager._sockets.path)
    assert not made.startswith(str(tmp_path / "d"))
    assert os.path.isdir(made)
    assert len(os.fsencode(made)) <= 107 - len("/0123456789ab.sock")
    asyncio.run(manager.close())
    assert not os.path.exists(made)


LONG_NAME = "é" * 128
"""Its 256 bytes are one more than a file's name may have."""


@pytest.mark.parametrize("runtime", ["process", "thread"])
async def test_name_that_is_longer_than_a_files_may_be(
    manager: RuntimeManager, client: AsyncClient, make_assignment: MakeAssignment, topic: str, runtime: str
) -> None:
    key = f"public/default/{LONG_NAME}:0"
    consumer = await client.subscribe(f"{topic}-out", "test", EARLIEST)
    producer = await client.create_producer(f"{topic}-in")
    await manager.apply({key: make_assignment(ECHO, runtime, name=LONG_NAME)})
    await producer.send(b"x")
    assert (await consumer.receive(60)).data == b"x"
    await running(manager, key)
    assert manager.log_file(key).exists()
    assert all(len(part.encode()) < 255 for part in manager.log_file(key).parts)


async def test_names_that_begin_alike_have_logs_of_their_own(manager: RuntimeManager) -> None:
    paths = {manager.log_file(f"public/default/{LONG_NAME}{end}:0") for end in "ab"}
    assert len(paths) == 2
    assert manager.log_file("t/n/f:3").parts[-4:] == ("t", "n", "f", "f-3.log")


async def test_logs_of_functions_that_are_gone_are_removed_once_their_instances_are(
    manager: RuntimeManager, make_assignment: MakeAssignment
) -> None:
    held, gone, other = (f"public/default/{name}:0" for name in ("f", "gone", "other"))
    for key in (gone, other, f"left/behind/{LONG_NAME}:1"):
        manager.log_file(key).parent.mkdir(parents=True)
        manager.log_file(key).write_text("old")
    await manager.apply({held: make_assignment(ECHO)})
    await running(manager)
    assert not await manager.remove_logs({"public/default/other"})
    assert manager.log_file(held).exists()
    assert manager.log_file(other).exists()
    assert not manager.log_file(gone).parent.exists()
    assert not manager.log_file("left/behind/x:1").parent.parent.exists()
    await manager.apply({})

    async def is_removed() -> bool:
        return await manager.remove_logs({"public/default/other"})

    await until(is_removed)
    assert not manager.log_file(held).parent.exists()
    assert manager.log_file(other).exists()


@pytest.mark.parametrize(("life", "is_kept"), [("first", True), ("second", False), ("", True)])
async def test_function_created_again_begins_with_empty_logs(
    manager: RuntimeManager, make_assignment: MakeAssignment, life: str, is_kept: bool
) -> None:
    assignment = make_assignment(ECHO)
    metadata = assignment.instance.functionMetaData
    metadata.functionUuid = "first"
    await manager.apply({KEY: assignment})
    await running(manager)
    with manager.log_file(KEY).open("a") as file:
        file.write("of the first life\n")
    metadata.version += 1
    metadata.functionUuid = life
    await manager.apply({KEY: assignment})

    async def has_ended_and_begun() -> bool:
        return (await manager.status(KEY)).running and not manager._stopping

    await until(has_ended_and_begun)
    assert ("of the first life" in tail(manager.log_file(KEY), 100)) == is_kept


async def test_stop_waits_for_no_package(server: Server, make_assignment: MakeAssignment, tmp_path: Path) -> None:
    began = asyncio.Event()

    async def fetch_for_ever(_: records.PackageLocationMetaData) -> Path:
        began.set()
        await asyncio.Event().wait()
        raise AssertionError

    around = InstanceEnvironment(
        worker_id="w", service_url=server.service_url, admin_url="", data_dir=tmp_path / "data"
    )
    manager = RuntimeManager({"thread": ThreadRuntime(server.service_url)}, fetch_for_ever, around)
    await manager.apply({KEY: make_assignment(ECHO, "thread")})
    async with asyncio.timeout(60):
        await began.wait()
        await manager.apply({KEY: make_assignment(ECHO, "thread", version=1)})
        await manager.apply({})
        await manager.close()
