"""Process instances: the zygote, its children, and how they end."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import grpc
import psutil
import pytest
from magnetar.client.client import AsyncClient
from magnetar.client.config import ConsumerConfig
from magnetar.errors import FunctionLoadError
from magnetar.instance.spec import InstanceSpec, from_json
from magnetar.runtime.process.runtime import ProcessInstance, ProcessRuntime
from magnetar.wire import functions_pb2 as records

from tests.support.calm import Calm
from tests.support.eventually import until
from tests.support.instances import MakeSpec
from tests.support.servers import is_alive, survivors

EARLIEST = ConsumerConfig(initial_position="Earliest")


@pytest.fixture
async def runtime() -> AsyncIterator[ProcessRuntime]:
    runtime = ProcessRuntime()
    yield runtime
    await runtime.close()


async def is_running(instance: ProcessInstance) -> bool:
    return (await instance.status()).running


def test_spec_survives_its_journey() -> None:
    spec = from_json(_bare_spec().to_json())
    assert spec == _bare_spec()
    assert spec.key == "public/default/f:7"


def _bare_spec() -> InstanceSpec:
    details = records.FunctionDetails(tenant="public", namespace="default", name="f", userConfig='{"ü": 1}')
    return InstanceSpec(
        metadata=records.FunctionMetaData(functionDetails=details),
        instance_id=7,
        package=Path("/p"),
        worker_id="w",
        service_url="s",
        admin_url="a",
        log_file=Path("/l"),
        control_socket=Path("/c"),
        last_words=Path("/x y"),
        state_url="bk://h:1",
    )


async def test_function_processes_messages(
    runtime: ProcessRuntime, client: AsyncClient, make_spec: MakeSpec, topic: str
) -> None:
    outputs = await client.subscribe(f"{topic}-out", "test", EARLIEST)
    producer = await client.create_producer(f"{topic}-in")
    instance = await runtime.start(make_spec("def process(text):\n    return text + '!'\n"))
    for word in ("one", "two"):
        await producer.send(word.encode())
    assert [(await outputs.receive(30)).data for _ in range(2)] == [b"one!", b"two!"]
    status = await instance.status()
    assert (status.numReceived, status.numSuccessfullyProcessed) == (2, 2)
    await instance.stop(30)
    assert instance.leftover() == ""
    assert await instance.wait() == ""


async def test_process_has_a_title_a_session_and_one_zygote_as_parent(
    runtime: ProcessRuntime, make_spec: MakeSpec
) -> None:
    first = await runtime.start(make_spec("def process(text): pass", instance_id=4))
    second = await runtime.start(make_spec("def process(text): pass", instance_id=5))
    await until(lambda: is_running(first))
    process = psutil.Process(first.process_id)
    assert process.cmdline()[0] == "magnetar instance public/default/f:4"
    assert os.getsid(first.process_id) == first.process_id
    zygote = process.parent()
    assert zygote is not None
    assert zygote.num_threads() == 1
    assert zygote == psutil.Process(second.process_id).parent()


async def test_killed_process_is_reported(runtime: ProcessRuntime, make_spec: MakeSpec) -> None:
    instance = await runtime.start(make_spec("def process(text): pass"))
    await until(lambda: is_running(instance))
    os.kill(instance.process_id, signal.SIGKILL)
    assert "SIGKILL" in await instance.wait()


@pytest.mark.parametrize(
    ("code", "class_name", "expected"),
    [
        ("def process(text: return", "user_code.process", "SyntaxError"),
        ("1 / 0", "user_code.process", "ZeroDivisionError"),
        (
            "import nothing_like_this",
            "user_code.process",
            "No module named 'nothing_like_this': add it to the package",
        ),
        ("def other(text): pass", "user_code.process", "module 'user_code' has no 'process'; it defines other"),
        ("", "elsewhere.process", "the package has no module 'elsewhere'"),
        ("class C:\n    def __init__(self): raise KeyError('k')", "user_code.C", "KeyError: 'k'"),
        ("class C: pass", "user_code.C", "class user_code.C has no method process"),
        ("def process(a, b, c): pass", "user_code.process", "takes (a, b, c)"),
        ("import os; os._exit(7)", "user_code.process", "exit code 7"),
        ("import sys; sys.exit('so')", "user_code.process", "sys.exit('so')"),
    ],
)
async def test_function_that_cannot_start_says_why(
    runtime: ProcessRuntime, make_spec: MakeSpec, code: str, class_name: str, expected: str
) -> None:
    await runtime.warm_up()
    spec = make_spec(code, class_name)
    began = Calm()
    instance = await runtime.start(spec)
    reason = await instance.wait()
    assert began.calm_s < 2, began
    assert expected in reason
    assert (await instance.status()).failureException == reason
    if "exit code" not in expected:
        assert expected in spec.log_file.read_text()


async def test_socket_with_a_long_path_is_refused_with_the_remedy(runtime: ProcessRuntime, make_spec: MakeSpec) -> None:
    spec = make_spec("def process(x): return x", "user_code.process")
    spec = replace(spec, control_socket=spec.control_socket.parent / ("s" * 108))
    with pytest.raises(FunctionLoadError, match="has more than 107 bytes: set TMPDIR to a directory with a shorter"):
        await runtime.start(spec)


async def test_instances_die_with_their_worker(make_spec: MakeSpec) -> None:
    """The zygote notices the end of its socket, the instances the end of the zygote."""
    runtime = ProcessRuntime()
    instance = await runtime.start(make_spec("import time\ndef process(text): time.sleep(60)"))
    await until(lambda: is_running(instance))
    process = psutil.Process(instance.process_id)
    zygote = process.parent()
    assert zygote is not None
    began = Calm()
    await runtime.close()
    assert await asyncio.to_thread(survivors, [process, zygote], 30.0) == []
    assert began.calm_s < 1, began


async def test_new_zygote_is_started_after_the_old_one_died(runtime: ProcessRuntime, make_spec: MakeSpec) -> None:
    first = await runtime.start(make_spec("def process(text): pass"))
    zygote = psutil.Process(first.process_id).parent()
    assert zygote is not None
    process = psutil.Process(first.process_id)
    zygote.kill()
    assert "the process that starts instances was terminated by SIGKILL" in await first.wait()

    async def is_dead() -> bool:
        return not is_alive(process)

    await until(is_dead)
    second = await runtime.start(make_spec("def process(text): pass"))
    await until(lambda: is_running(second))


async def test_process_that_came_too_late_is_ended(
    runtime: ProcessRuntime, make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would know of it, and it would have the lock of the instance that is started in its place."""
    first = await runtime.start(make_spec("def process(text): pass"))
    zygote = psutil.Process(first.process_id).parent()
    assert zygote is not None
    zygote.suspend()
    try:
        with monkeypatch.context() as patch:
            patch.setattr("magnetar.runtime.process.runtime.START_TIMEOUT_S", 0.2)
            with pytest.raises(FunctionLoadError, match=r"f:1: the zygote did not respond within 0\.2 s"):
                await runtime.start(make_spec("def process(text): pass", instance_id=1))
    finally:
        zygote.resume()
    # Orders are obeyed one after the other: with this one running, the late one was started, and then ended.
    another = await runtime.start(make_spec("def process(text): pass", instance_id=2))
    await until(lambda: is_running(another))

    async def are_known() -> bool:
        living = {one.pid for one in zygote.children() if is_alive(one)}
        return living == {first.process_id, another.process_id}

    await until(are_known)


async def test_everything_said_goes_to_the_log(
    runtime: ProcessRuntime, client: AsyncClient, make_spec: MakeSpec, topic: str
) -> None:
    code = """
import logging, os, sys
def process(text, context):
    print("printed", text)
    print("to stderr", file=sys.stderr)
    logging.getLogger("mine").warning("warned")
    context.get_logger().info("logged")
    os.system("echo from a child")
    raise ValueError("raised")
"""
    spec = make_spec(code)
    producer = await client.create_producer(f"{topic}-in")
    instance = await runtime.start(spec)
    await producer.send(b"x")

    async def has_failed() -> bool:
        return (await instance.status()).numUserExceptions == 1

    async def is_logged() -> bool:  # what a child writes goes through a pipe, and so comes later than the rest
        return "from a child" in spec.log_file.read_text()

    await until(has_failed)
    await until(is_logged)
    text = spec.log_file.read_text()
    for expected in ("INFO printed x", "ERROR to stderr", "WARNING [mine] warned", "INFO [public/default/f:0] logged",
                     "ValueError: raised", 'user_code.py", line 9, in process'):  # fmt: skip
        assert expected in text
    status = await instance.status()
    assert "ValueError: raised" in status.latestUserExceptions[0].exceptionString
    assert "batch_call" not in status.latestUserExceptions[0].exceptionString


async def test_endless_loop_is_ended_by_force(
    runtime: ProcessRuntime, client: AsyncClient, make_spec: MakeSpec, topic: str
) -> None:
    producer = await client.create_producer(f"{topic}-in")
    instance = await runtime.start(make_spec("def process(text):\n    while True: pass"))
    await producer.send(b"x")
    await until(lambda: is_running(instance))
    await instance.stop(0.3)
    assert instance.leftover() == ""
    assert not psutil.pid_exists(instance.process_id)


FACADE = """
import sys
from pulsar import Function, SerDe, IdentitySerDe
import pulsar.functions.context
class Exclaim(Function):
    def process(self, input, context):
        if input == "load":
            import pulsar
            from pulsar.schema import Record
            return f"{pulsar.Client.__module__} {Record.__module__} {Function is pulsar.Function}"
        loaded = [name for name in sys.modules if name in ("_pulsar", "pulsar.schema")]
        return f"{input}! {loaded}"
"""


async def test_code_written_for_pulsar_runs_unchanged(
    runtime: ProcessRuntime, client: AsyncClient, make_spec: MakeSpec, topic: str
) -> None:
    """The official client is loaded only when something of it is used."""
    outputs = await client.subscribe(f"{topic}-out", "test", EARLIEST)
    producer = await client.create_producer(f"{topic}-in")
    await runtime.start(make_spec(FACADE, "user_code.Exclaim"))
    for word in ("hello", "load"):
        await producer.send(word.encode())
    assert (await outputs.receive(30)).data == b"hello! []"
    assert (await outputs.receive(30)).data == b"pulsar pulsar.schema.definition True"


WITHOUT_OFFICIAL = """
import sys, importlib.machinery
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name == "_pulsar" or name == "pulsar":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hide())
from pulsar import Function
import pulsar
def process(text):
    found = []
    try:
        pulsar.Client
    except AttributeError as error:
        found.append(str(error))
    try:
        from pulsar.schema import Record
    except ModuleNotFoundError as error:
        found.append(str(error))
    return str(found)
"""


async def test_without_the_official_client_functions_run_and_the_rest_says_what_to_install(
    runtime: ProcessRuntime, client: AsyncClient, make_spec: MakeSpec, topic: str
) -> None:
    outputs = await client.subscribe(f"{topic}-out", "test", EARLIEST)
    producer = await client.create_producer(f"{topic}-in")
    await runtime.start(make_spec(WITHOUT_OFFICIAL))
    await producer.send(b"x")
    text = (await outputs.receive(30)).data.decode()
    assert text.count("install the official client for everything else: pip install pulsar-client") == 2


async def test_modules_of_the_package_win_over_ours(
    runtime: ProcessRuntime, client: AsyncClient, make_spec: MakeSpec, topic: str
) -> None:
    code = {
        "user_code.py": "import uvloop as u, errors as e, wire.frames as w\n"
        "def process(x): return u.MINE + e.MINE + w.MINE",
        "uvloop.py": "MINE = 'u'",
        "errors.py": "MINE = 'e'",
        "wire/frames.py": "MINE = 'w'",
        "queue.py": "",
    }
    outputs = await client.subscribe(f"{topic}-out", "test", EARLIEST)
    producer = await client.create_producer(f"{topic}-in")
    spec = make_spec(code)
    await runtime.start(spec)
    await producer.send(b"x")
    assert (await outputs.receive(30)).data == b"uew"
    assert "'queue' of the package is hidden by a standard library module" in spec.log_file.read_text()


async def test_control_service_speaks_pulsars_grpc(runtime: ProcessRuntime, make_spec: MakeSpec) -> None:
    spec = make_spec("def process(text): pass")
    instance = await runtime.start(spec)
    await until(lambda: is_running(instance))

    def ask(method: str) -> bytes:
        with grpc.insecure_channel(f"unix:{spec.control_socket}") as channel:
            call = channel.unary_unary(f"/proto.InstanceControl/{method}", bytes, bytes)
            return bytes(call(b"", timeout=5))

    assert records.FunctionStatus.FromString(await asyncio.to_thread(ask, "GetFunctionStatus")).running
    assert records.HealthCheckResult.FromString(await asyncio.to_thread(ask, "HealthCheck")).success
    for method in ("GetMetrics", "GetAndResetMetrics"):
        assert records.MetricsData.FromString(await asyncio.to_thread(ask, method)).receivedTotal == 0
    assert await asyncio.to_thread(ask, "ResetMetrics") == b""


@pytest.mark.slow
async def test_instances_are_small(runtime: ProcessRuntime, make_spec: MakeSpec) -> None:
    first = await runtime.start(make_spec("def process(text): pass"))
    await until(lambda: is_running(first))
    zygote = psutil.Process(first.process_id).parent()
    assert zygote is not None

    def total() -> int:
        family = [zygote, *zygote.children()]
        return sum(process.memory_full_info().pss for process in family)

    before = total()
    others = [await runtime.start(make_spec("def process(text): pass", instance_id=number)) for number in range(1, 5)]
    for other in others:
        await until(functools.partial(is_running, other))
    assert (total() - before) / len(others) < 15e6
