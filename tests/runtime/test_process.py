"""Process instances: the zygote, its children, and how they end."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from magnetar.client.client import AsyncClient
from magnetar.client.config import ConsumerConfig
from magnetar.runtime.process.runtime import ProcessInstance, ProcessRuntime
from magnetar.runtime.spec import InstanceSpec, from_json
from magnetar.wire import functions_pb2 as records

from tests.runtime.conftest import MakeSpec, until

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
    )


async def test_function_processes_messages(
    runtime: ProcessRuntime, client: AsyncClient, make_spec: MakeSpec, topic: str
) -> None:
    outputs = await client.subscribe(f"{topic}-out", "test", EARLIEST)
    producer = await client.create_producer(f"{topic}-in")
    instance = await runtime.start(make_spec("def process(text):\n    return text + '!'\n"))
    for word in ("one", "two"):
        await producer.send(word.encode())
    assert [(await outputs.receive(10)).data for _ in range(2)] == [b"one!", b"two!"]
    status = await instance.status()
    assert (status.numReceived, status.numSuccessfullyProcessed) == (2, 2)
    assert await instance.stop(5) is None
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
        ("import nothing_like_this", "user_code.process", "No module named 'nothing_like_this'"),
        ("def other(text): pass", "user_code.process", "module 'user_code' has no 'process'; it has other"),
        ("", "elsewhere.process", "names module 'elsewhere', which the package does not have"),
        ("class C:\n    def __init__(self): raise KeyError('k')", "user_code.C", "KeyError: 'k'"),
        ("class C: pass", "user_code.C", "class user_code.C has no method process"),
        ("async def process(text): pass", "user_code.process", "is an async def function, which is not supported yet"),
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
    began = time.monotonic()
    instance = await runtime.start(spec)
    reason = await instance.wait()
    assert time.monotonic() - began < 2
    assert expected in reason
    assert (await instance.status()).failureException == reason
    if "exit code" not in expected:
        assert expected in spec.log_file.read_text()


async def test_instances_die_with_their_worker(make_spec: MakeSpec) -> None:
    """The zygote notices the end of its socket, the instances the end of the zygote."""
    runtime = ProcessRuntime()
    instance = await runtime.start(make_spec("import time\ndef process(text): time.sleep(60)"))
    await until(lambda: is_running(instance))
    process = psutil.Process(instance.process_id)
    zygote = process.parent()
    assert zygote is not None
    began = time.monotonic()
    await runtime.close()
    _, alive = await asyncio.to_thread(psutil.wait_procs, [process, zygote], 1.0)
    assert not alive
    assert time.monotonic() - began < 1


async def test_new_zygote_is_started_after_the_old_one_died(runtime: ProcessRuntime, make_spec: MakeSpec) -> None:
    first = await runtime.start(make_spec("def process(text): pass"))
    zygote = psutil.Process(first.process_id).parent()
    assert zygote is not None
    zygote.kill()
    assert "the process that starts instances ended" in await first.wait()
    second = await runtime.start(make_spec("def process(text): pass"))
    await until(lambda: is_running(second))


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

    await until(has_failed)
    text = spec.log_file.read_text()
    for expected in ("INFO printed x", "ERROR to stderr", "WARNING [mine] warned", "INFO [public/default/f:0] logged",
                     "from a child", "ValueError: raised", 'user_code.py", line 9, in process'):  # fmt: skip
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
    assert await instance.stop(0.3) is None
    assert not psutil.pid_exists(instance.process_id)
