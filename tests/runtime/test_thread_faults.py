"""What user code does in a thread of the worker: contained where it can be, and told; `docs/functions.md` has the rest.

Exits, crashes and memory are the worker's; that its instances move then is the matter of the tests that kill workers.
"""

from __future__ import annotations

import io
import logging
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest
from magnetar.client.client import AsyncClient
from magnetar.instance.loading import loader as loading
from magnetar.runtime.thread.runtime import ThreadInstance, ThreadRuntime

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
        ("import threading; threading.Event().wait(60)", "user_code.process", "importing module user_code since "),
        (
            "import threading\nclass C:\n    def __init__(self): threading.Event().wait(60)",
            "user_code.C",
            "making an object of class user_code.C since ",
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
