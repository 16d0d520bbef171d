"""Faults of user code in a thread of the worker are contained where possible, and reported.

`docs/reference/function-runtimes.md` lists those that are not.

Exits, crashes and memory are the worker's; that its instances move then is the matter of the tests that kill workers.
"""

from __future__ import annotations

import gc
import io
import linecache
import logging
import sys
import uuid
import weakref
from collections.abc import AsyncIterator, Iterator

import pytest
from magnetar.client.client import AsyncClient
from magnetar.instance.loading import loader as loading
from magnetar.instance.logs import tracebacks
from magnetar.runtime.thread.runtime import ThreadInstance, ThreadRuntime
from magnetar.wire import functions_pb2 as records

from tests.support.eventually import until
from tests.support.instances import MakeSpec
from tests.support.servers import Server

NEIGHBOUR = """
import logging
def process(text, context):
    print("printed", text)
    logging.getLogger(__name__).warning("logged %s", text)
    context.get_logger().warning("told %s", text)
    return text + "!"
"""


@pytest.fixture
def said() -> Iterator[io.StringIO]:
    """What the worker's log gets."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    root = logging.getLogger()
    root.addHandler(handler)
    yield stream
    root.removeHandler(handler)


@pytest.fixture
async def runtime(server: Server, said: io.StringIO) -> AsyncIterator[ThreadRuntime]:
    runtime = ThreadRuntime(server.service_url)
    yield runtime
    await runtime.close()
    assert type(logging.getLogger().handlers) is list


async def ask(client: AsyncClient, topic: str, text: str) -> bytes:
    outputs = await client.subscribe(f"{topic}-out", uuid.uuid4().hex)
    producer = await client.create_producer(f"{topic}-in")
    await producer.send(text.encode())
    answer = bytes((await outputs.receive(60)).data)
    await outputs.close()
    await producer.close()
    return answer


CHANGES = {
    "basicConfig": "logging.basicConfig(force=True, level=logging.CRITICAL)",
    "handlers removed": "[root.removeHandler(handler) for handler in root.handlers[:]]",
    "handlers replaced": "root.handlers = []",
    "shut down": "logging.shutdown()",
    "disabled": "logging.disable(logging.CRITICAL)",
    "level": "root.setLevel(60)",
    "dictConfig": "import logging.config; logging.config.dictConfig({'version': 1, 'root': {'handlers': []}})",
    "streams closed": "import sys; sys.stdout.close(); sys.stderr.close()",
}


@pytest.mark.parametrize("change", CHANGES)
async def test_logging_of_worker_and_neighbour_survives(
    runtime: ThreadRuntime, client: AsyncClient, make_spec: MakeSpec, topic: str, said: io.StringIO, change: str
) -> None:
    code = f"import logging\nroot = logging.getLogger()\ndef process(text):\n    {CHANGES[change]}\n    return 'done'"
    inputs = make_spec().details.source
    neighbour_spec = make_spec(NEIGHBOUR, name="neighbour", instance_id=1)
    neighbour_spec.details.source.inputSpecs.clear()
    neighbour_spec.details.source.inputSpecs[f"{topic}-other-in"].SetInParent()
    neighbour_spec.details.sink.topic = f"{topic}-other-out"
    assert inputs.inputSpecs
    neighbour = await runtime.start(neighbour_spec)
    instance = await runtime.start(make_spec(code))
    assert await ask(client, topic, "x") == b"done"
    log = logging.getLogger("magnetar.worker.test")

    async def is_heard() -> bool:
        log.warning("the worker speaks")
        return "the worker speaks" in said.getvalue()

    await until(is_heard)
    assert await ask(client, f"{topic}-other", "x") == b"x!"
    text = neighbour_spec.log_file.read_text()
    assert [word in text for word in ("printed x", "logged x", "told x")] == [True] * 3
    for one in (instance, neighbour):
        await one.stop(30)


async def test_sys_exit_fails_its_message_only(
    runtime: ThreadRuntime, client: AsyncClient, make_spec: MakeSpec, topic: str
) -> None:
    code = "import sys\ndef process(text):\n    return sys.exit('so') if text == 'x' else text"
    instance = await runtime.start(make_spec(code))
    producer = await client.create_producer(f"{topic}-in")
    await producer.send(b"x")
    assert await ask(client, topic, "y") == b"y"
    (failure,) = (await instance.status()).latestUserExceptions
    assert "SystemExit: so" in failure.exceptionString
    await instance.stop(30)


@pytest.mark.parametrize(
    ("code", "class_name", "expected"),
    [
        ("import threading; threading.Event().wait(60)", "user_code.process", "importing module user_code for "),
        (
            "import threading\nclass C:\n    def __init__(self): threading.Event().wait(60)",
            "user_code.C",
            "creating an instance of class user_code.C for ",
        ),
    ],
)
async def test_status_says_that_an_import_takes_long(
    runtime: ThreadRuntime, make_spec: MakeSpec, code: str, class_name: str, expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(loading, "SHOWN_AFTER_S", 0.1)
    # A name of its own: the thread of the one before waits inside the import of a module of that name.
    instance: ThreadInstance = await runtime.start(make_spec(code, class_name, name=f"f-{uuid.uuid4().hex[:8]}"))

    async def is_said() -> bool:
        status = await instance.status()
        return not status.running and status.failureException.startswith(expected)

    await until(is_said)
    await instance.stop(0.1)


HOLDER = """
import logging, weakref
from typing import List
import part
class Big:
    pass
BIG = Big()
part.WITNESS.append(weakref.ref(BIG))
Alias = List[Big]
logging.getLogger(__name__).addHandler(logging.NullHandler())
def process(text):
    if text == "fails":
        raise ValueError(text)
    return text
"""


async def test_nothing_is_kept_of_the_modules_of_functions_that_have_ended(
    runtime: ThreadRuntime, client: AsyncClient, make_spec: MakeSpec, topic: str
) -> None:
    ours = tuple(f"{begin}f{number}" for begin in ("fn_public_default_", "public/default/") for number in range(3))

    def kept() -> list[str]:
        gc.collect()
        names = [*sys.modules, *linecache.cache, *sys.path_importer_cache, *logging.getLogger().manager.loggerDict]
        names += [code.co_filename for _, codes in tracebacks._kept.values() for code in codes]
        # Functions of other tests, which have ended in this process too, may be forgotten later.
        return sorted(name for name in names if any(one in name for one in (*ours, package)))

    witnesses: list[list[weakref.ref[object]]] = []
    for number in range(3):
        inputs = records.SourceSpec()
        inputs.inputSpecs[f"{topic}-{number}-in"].SetInParent()
        spec = make_spec({"user_code.py": HOLDER, "part.py": "WITNESS = []"}, name=f"f{number}", source=inputs)
        package = str(spec.package)
        instance = await runtime.start(spec)
        producer = await client.create_producer(f"{topic}-{number}-in")
        await producer.send(b"fails")
        await producer.send(b"x")

        async def is_done(running: ThreadInstance = instance) -> bool:
            status = await running.status()
            return status.numSuccessfullyProcessed == 1 and status.numUserExceptions >= 1

        await until(is_done)
        part = next(
            module
            for key, module in sys.modules.items()
            if key.startswith(f"fn_public_default_f{number}_") and key.endswith(".part")
        )
        witnesses.append(part.WITNESS)
        assert witnesses[-1][0]() is not None
        assert kept()
        await instance.stop(30)
        del instance, is_done
        assert not kept()
        assert [one[0]() for one in witnesses] == [None] * len(witnesses)
