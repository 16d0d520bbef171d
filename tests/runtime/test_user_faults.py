"""What user code does to itself and its surroundings, in a process of its own: contained, and told.

A neighbour runs on the same worker through all of it, and must be the same process afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import uuid
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import pytest
import pytest_asyncio
from magnetar.client.client import AsyncClient
from magnetar.client.config import ConsumerConfig
from magnetar.instance.logs.file import rotated
from magnetar.instance.spec import InstanceSpec
from magnetar.runtime.process import marks
from magnetar.runtime.process.runtime import ProcessInstance, ProcessRuntime
from magnetar.wire import functions_pb2 as records

from tests.support.eventually import until
from tests.support.instances import spec_maker
from tests.support.servers import Server, is_alive

pytestmark = pytest.mark.asyncio(loop_scope="module")
EARLIEST = ConsumerConfig(initial_position="Earliest")
MIB = 1024 * 1024


@dataclass
class Worker:
    """A runtime with a neighbour in it, and what tests need to disturb it."""

    runtime: ProcessRuntime
    client: AsyncClient
    url: str
    directory: Path
    neighbour: ProcessInstance
    neighbour_topic: str
    started: list[ProcessInstance] = field(default_factory=list)

    async def start(self, code: str | dict[str, str], **details: object) -> tuple[ProcessInstance, str]:
        """Start a function, and return it with its topic."""
        topic = f"persistent://public/default/fault-{uuid.uuid4().hex[:8]}"
        spec = spec_maker(self.url, self.directory, topic)(code, name=f"f{len(self.started)}", **details)
        instance = await self.runtime.start(own_log(spec, topic))
        self.started.append(instance)
        return instance, topic

    async def call(self, topic: str, text: str) -> bytes:
        """Have the function of a topic process a text."""
        async with asyncio.timeout(60):
            outputs = await self.client.subscribe(f"{topic}-out", uuid.uuid4().hex)
            producer = await self.client.create_producer(f"{topic}-in")
            await producer.send(text.encode())
            output = (await outputs.receive(60)).data
            await outputs.close()
            await producer.close()
        return bytes(output)

    async def send(self, topic: str, text: str = "x") -> None:
        """Send a text to a function that will not answer."""
        producer = await self.client.create_producer(f"{topic}-in")
        await producer.send(text.encode())
        await producer.close()

    async def check_neighbour(self) -> None:
        """The neighbour works, and was not started again."""
        assert await self.call(self.neighbour_topic, "still") == str(self.neighbour.process_id).encode()


def own_log(spec: InstanceSpec, topic: str) -> InstanceSpec:
    return replace(spec, log_file=spec.log_file.parent / topic.rpartition("/")[2] / "f.log")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def worker(server: Server, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Worker]:
    directory = tmp_path_factory.mktemp("faults")
    runtime = ProcessRuntime(liveness_check_s=0.5)
    topic = f"persistent://public/default/neighbour-{uuid.uuid4().hex[:8]}"
    async with AsyncClient(server.service_url) as client:
        spec = spec_maker(server.service_url, directory, topic)("import os\ndef process(text): return str(os.getpid())")
        neighbour = await runtime.start(own_log(spec, topic))
        it = Worker(runtime, client, server.service_url, directory, neighbour, topic)
        await it.check_neighbour()
        yield it
        await runtime.close()


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def neighbour_is_unharmed(worker: Worker) -> AsyncIterator[None]:
    yield
    for instance in worker.started:
        await instance.stop(0.5)
    worker.started.clear()
    await worker.check_neighbour()


ENDS = {
    "exit": ("import os; os._exit(7)", "exit code 7"),
    "exit in a process pool's child": (
        "import multiprocessing as m; p = m.get_context('fork').Process(target=lambda: 1); p.start(); p.join();"
        " import os; os._exit(p.exitcode + 9)",
        "exit code 9",
    ),
    "kill": ("import os; os.kill(os.getpid(), 9)", "SIGKILL"),
    "signal without a name": ("import os; os.kill(os.getpid(), 40)", "signal 40"),
    "terminate": ("import os, time; os.kill(os.getpid(), 15); time.sleep(0.1)", ""),
    "kill the group": ("import os; os.killpg(0, 9)", "SIGKILL"),
    "segmentation fault": ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
    "abort": ("import os; os.abort()", "SIGABRT"),
    "fatal error of a library": (
        "import ctypes, os; os.write(2, b'corrupted double-linked list'); ctypes.CDLL(None).abort()",
        "corrupted double-linked list",
    ),
    "endless recursion in C": (
        "import sys, functools; sys.setrecursionlimit(10**8);"
        " repr(functools.reduce(lambda x, _: [x], range(10**6), []))",
        "SIGSEGV",
    ),
    "memory": ("x = []\n    while True: x.append(bytearray(8 << 20))", "more than 300 MiB (resources.ram)"),
    "memory of a child": (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'x = [bytearray(8 << 20) for _ in range(60)];"
        " import time; time.sleep(60)'], start_new_session=True)",
        "in 2 processes, more than 300 MiB (resources.ram)",
    ),
    "the interpreter held": ("import re; re.match(r'(a+)+$', 'a' * 60 + 'b')", "has not responded for"),
    "the event loop held": (
        "import asyncio, gc\n    def loop():\n        while True: pass\n"
        "    main = next(one for one in gc.get_objects() if isinstance(one, asyncio.AbstractEventLoop))\n"
        "    main.call_soon_threadsafe(loop)",
        "has not responded for",
    ),
    "all files closed": ("import os; os.closerange(0, 4096)", ""),
    "a process that is stopped": ("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", "has not responded for"),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", ENDS)
async def test_fault_ends_the_instance_with_its_reason(worker: Worker, fault: str) -> None:
    statement, reason = ENDS[fault]
    resources = records.Resources(ram=300 * MIB)
    instance, topic = await worker.start(f"def process(text):\n    {statement}\n", resources=resources)
    await worker.send(topic)

    async def is_shown() -> bool:
        return reason in (await instance.status()).failureException

    await until(is_shown)
    async with asyncio.timeout(60):
        assert reason in await instance.wait()
    assert reason in (await instance.status()).failureException
    assert not psutil.pid_exists(instance.process_id)


SURVIVES: dict[str, str | dict[str, str]] = {
    "standard streams closed": "import os\ndef process(text):\n    for n in range(3): os.close(n)\n    return 'done'",
    "streams replaced": "import sys\ndef process(text):\n    sys.stdout = sys.stderr = None\n    return 'done'",
    "streams closed": "import sys\ndef process(text):\n    sys.stdout.close(); sys.stderr.close()\n    return 'done'",
    "logging replaced": (
        "import logging\ndef process(text):\n    logging.basicConfig(force=True)\n    logging.shutdown()\n"
        "    logging.disable()\n    return 'done'"
    ),
    "builtins replaced": (
        "import builtins, time, threading, queue, socket\ndef process(text):\n    builtins.print = time.sleep = None\n"
        "    threading.Thread = queue.Queue = socket.socket = None\n    return 'done'"
    ),
    "signal handlers in a thread": (
        "import signal\ndef process(text):\n    try: signal.signal(15, signal.SIG_IGN)\n"
        "    except ValueError: return 'done'"
    ),
    "signal ignored": "import ctypes\ndef process(text):\n    ctypes.CDLL(None).signal(15, 1)\n    return 'done'",
    "folder gone": "import os\ndef process(text):\n    os.chdir('/')\n    os.environ.clear()\n    return 'done'",
    "threads left behind": (
        "import threading, time\ndef process(text):\n"
        "    for _ in range(20): threading.Thread(target=time.sleep, args=(1e5,)).start()\n    return 'done'"
    ),
    "sys.exit in a thread": (
        "import threading, sys\ndef process(text):\n    t = threading.Thread(target=sys.exit); t.start(); t.join()\n"
        "    return 'done'"
    ),
    "a fork that goes on": (
        "import os, time\ndef process(text):\n    if not os.fork(): time.sleep(1e5)\n    return 'done'"
    ),
    "surrogates printed": "def process(text):\n    print('\\ud800\\x00\\x1b[2J')\n    return 'done'",
    "modules of ours and of Python": {
        "user_code.py": "import grpc, google, uvloop, statistics, logging, asyncio\n"
        "def process(text): return 'done' if grpc.MINE and google.MINE and uvloop.MINE and statistics.MINE else 'no'",
        **{f"{name}.py": "MINE = 1" for name in ("grpc", "google", "uvloop", "statistics", "logging", "asyncio")},
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", SURVIVES)
async def test_fault_is_survived(worker: Worker, fault: str) -> None:
    instance, topic = await worker.start(SURVIVES[fault])
    assert await worker.call(topic, "x") == b"done"
    process_id = instance.process_id
    status = await instance.status()
    assert (status.running, status.failureException, status.numUserExceptions) == (True, "", 0)
    await instance.stop(0.5)
    assert not psutil.pid_exists(process_id)


async def test_recursion_fails_its_message_only(worker: Worker) -> None:
    instance, topic = await worker.start("def process(text):\n    return process(text) if text == 'deep' else 'done'")
    await worker.send(topic, "deep")

    async def has_failed() -> bool:
        return (await instance.status()).numUserExceptions > 0

    await until(has_failed)
    assert await worker.call(topic, "x") == b"done"


PRINTS = {
    "one text": "print('x' * (40 << 20))",
    "many lines": "print('\\n' * (20 << 20))",
    "a logged text": "import logging; logging.getLogger('mine').info('%s', 'x' * (40 << 20))",
    "a child": "import subprocess; subprocess.run('head -c 60000000 /dev/zero | tr \"\\\\0\" y', shell=True)",
    "lines of a child": "import subprocess; subprocess.run('yes | head -c 30000000', shell=True)",
}


@pytest.mark.slow
@pytest.mark.parametrize("what", PRINTS)
async def test_log_stays_bounded_and_says_what_was_cut(worker: Worker, what: str) -> None:
    instance, topic = await worker.start(f"def process(text):\n    {PRINTS[what]}\n    return 'done'")
    assert await worker.call(topic, "x") == b"done"
    log_file = instance.spec.log_file
    if "child" not in what:
        assert "characters omitted" in log_file.read_text()
    sizes = [path.stat().st_size for path in (log_file, rotated(log_file)) if path.exists()]
    assert sum(sizes) < 21 * MIB
    assert psutil.Process(instance.process_id).memory_info().rss < 300 * MIB


DAEMON = """
import os, sys, time
def process(text):
    read, write = os.pipe()
    if not os.fork():
        os.setsid()
        if os.fork():
            os._exit(0)
        os.closerange(0, 3)
        os.write(write, str(os.getpid()).encode())
        os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(1e5)"], {})
    os.wait()
    return os.read(read, 100)
"""


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_processes_that_left_their_session_end_with_their_instance(worker: Worker, end: str) -> None:
    instance, topic = await worker.start(DAEMON)
    daemon = psutil.Process(int(await worker.call(topic, "x")))
    assert is_alive(daemon)
    if end == "stop":
        await instance.stop(30)
    else:
        os.kill(instance.process_id, 9)
        await instance.wait()
    await until(lambda: is_gone(daemon))


async def is_gone(process: psutil.Process) -> bool:
    return not is_alive(process)


@pytest.mark.parametrize("killed", ["worker's side", "zygote"])
async def test_processes_that_left_their_session_end_with_worker_and_zygote(worker: Worker, killed: str) -> None:
    runtime = ProcessRuntime()
    it = Worker(runtime, worker.client, worker.url, worker.directory, worker.neighbour, worker.neighbour_topic)
    try:
        instance, topic = await it.start(DAEMON)
        daemon = psutil.Process(int(await it.call(topic, "x")))
        if killed == "zygote":
            zygote = psutil.Process(instance.process_id).parent()
            assert zygote is not None
            zygote.kill()
            await instance.wait()
        else:
            await runtime.close()
        await until(lambda: is_gone(daemon))
    finally:
        await runtime.close()


WORKER = """
import asyncio, sys
from magnetar.runtime.process.runtime import ProcessRuntime
from magnetar.instance.spec import from_json

async def main():
    runtime = ProcessRuntime()
    await runtime.start(from_json(sys.stdin.read()))
    await asyncio.Event().wait()

asyncio.run(main())
"""
DAEMON_OF_AN_IMPORT = f"{DAEMON}\nwith open(__file__ + '.pid', 'wb') as file: file.write(process(''))"


async def test_processes_that_left_their_session_end_when_the_worker_is_killed(worker: Worker) -> None:
    spec = spec_maker(worker.url, worker.directory, "persistent://public/default/killed")(DAEMON_OF_AN_IMPORT)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", WORKER, stdin=asyncio.subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(spec.to_json().encode())
    process.stdin.close()
    written = spec.package / "user_code.py.pid"

    async def is_written() -> bool:
        return written.exists() and bool(written.read_text())

    await until(is_written)
    daemon = psutil.Process(int(written.read_text()))
    assert is_alive(daemon)
    process.kill()
    await process.wait()
    await until(lambda: is_gone(daemon))


MARKED_BY_NOBODY = """
import os
from magnetar.runtime.process import marks
marks.put_on(marks.mark_of(2**22 - 1, 1))
print("marked", flush=True)
os.execvp("sleep", ["sleep", "100000"])
"""


async def test_processes_of_a_zygote_that_is_gone_end_when_the_next_one_starts(worker: Worker) -> None:
    """As when worker and zygote are killed in the same moment."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", MARKED_BY_NOBODY, stdout=PIPE)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"marked\n"
    other = await asyncio.create_subprocess_exec("sleep", "100000")
    runtime = ProcessRuntime()
    try:
        await runtime.warm_up()
        async with asyncio.timeout(60):
            assert await process.wait() == -9
        assert other.returncode is None
    finally:
        await runtime.close()
        for one in (process, other):
            with contextlib.suppress(ProcessLookupError):
                one.kill()
            await one.wait()
    assert marks.end_abandoned() == 0
