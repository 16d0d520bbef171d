"""A broker of our own as a child process, and what instances need around them."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from magnetar.client.client import AsyncClient
from magnetar.instance.spec import InstanceSpec
from magnetar.runtime.interface import Instance, Runtime
from magnetar.runtime.process.runtime import ProcessRuntime
from magnetar.runtime.thread.runtime import ThreadRuntime
from magnetar.state.client import TableClient
from magnetar.wire import functions_pb2 as records

from tests.runtime.stateful import Start, StatefulSpec
from tests.support.exact import ExactSpec, exact_spec_maker
from tests.support.servers import Server, running


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("broker", tmp_path_factory.mktemp("runtime")) as server:
        yield server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server.service_url) as client:
        yield client


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic of this test's own; put something behind it for more."""
    name = re.sub(r"\W+", "-", request.node.name).strip("-")
    return f"persistent://public/default/{name}-{uuid.uuid4().hex[:8]}"


async def until(condition: Callable[[], Awaitable[bool]], timeout_s: float = 60.0) -> None:
    """Wait until a condition holds that can only be asked for."""
    async with asyncio.timeout(timeout_s):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


MakeSpec = Callable[..., InstanceSpec]


@pytest.fixture
def make_spec(server: Server, tmp_path: Path, topic: str) -> MakeSpec:
    """Return specs of functions that are written as text."""
    return spec_maker(server.service_url, tmp_path, topic)


def spec_maker(service_url: str, tmp_path: Path, topic: str) -> MakeSpec:
    def make(
        code: str | dict[str, str] = "",
        class_name: str = "user_code.process",
        instance_id: int = 0,
        **details: object,
    ) -> InstanceSpec:
        package = tmp_path / f"package-{uuid.uuid4().hex[:8]}"
        package.mkdir()
        for name, text in ({"user_code.py": code} if isinstance(code, str) else code).items():
            (package / name).parent.mkdir(parents=True, exist_ok=True)
            (package / name).write_text(text)
        values: dict[str, object] = {"tenant": "public", "namespace": "default", "name": "f", "autoAck": True}
        values |= {"className": class_name} | details
        function = records.FunctionDetails(**values)  # type: ignore[arg-type]
        if not function.source.inputSpecs:
            function.source.inputSpecs[f"{topic}-in"].SetInParent()
        function.source.subscriptionPosition = records.EARLIEST
        if not function.sink.topic and function.sink.typeClassName != "none":
            function.sink.topic = f"{topic}-out"
        run_dir = tmp_path / "run"
        run_dir.mkdir(exist_ok=True)
        return InstanceSpec(
            metadata=records.FunctionMetaData(functionDetails=function, version=3),
            instance_id=instance_id,
            package=package,
            worker_id="w",
            service_url=service_url,
            admin_url="",
            log_file=tmp_path / "logs" / f"f-{instance_id}.log",
            control_socket=run_dir / f"{uuid.uuid4().hex[:8]}.sock",
            last_words=run_dir / f"{uuid.uuid4().hex[:8]}.txt",
        )

    return make


@pytest.fixture(scope="module")
def state_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("state-store", tmp_path_factory.mktemp("state")) as server:
        yield server


@pytest.fixture
def state_url(state_store: Server) -> str:
    return str(state_store.addresses["stateStorageServiceUrl"])


@pytest.fixture
def tables(state_url: str) -> Iterator[TableClient]:
    client = TableClient(state_url)
    yield client
    client.close()


@pytest.fixture(params=["thread", "process"])
async def any_runtime(request: pytest.FixtureRequest, server: Server) -> AsyncIterator[Runtime]:
    runtime: Runtime = ThreadRuntime(server.service_url) if request.param == "thread" else ProcessRuntime()
    yield runtime
    await runtime.close()


@pytest.fixture
def make_stateful(make_spec: MakeSpec, state_url: str) -> StatefulSpec:
    """Return specs of functions with a table of their own."""
    name = f"f-{uuid.uuid4().hex[:8]}"

    def make(code: str, class_name: str = "user_code.process", instance_id: int = 0, **details: object) -> InstanceSpec:
        spec = make_spec(code, class_name, instance_id, **({"name": name} | details))
        return replace(spec, state_url=state_url)

    return make


@pytest.fixture
async def start_stateful(any_runtime: Runtime) -> AsyncIterator[Start]:
    instances: list[Instance] = []

    async def start(spec: InstanceSpec) -> Instance:
        instance = await any_runtime.start(spec)
        instances.append(instance)

        async def is_running() -> bool:
            status = await instance.status()
            assert status.running or not status.failureException, status.failureException
            return status.running

        await until(is_running)
        return instance

    yield start
    for instance in instances:
        await instance.stop(30)
        assert instance.leftover() == ""


@pytest.fixture
def exact_spec(make_spec: MakeSpec, server: Server) -> ExactSpec:
    """Return specs of functions that are EFFECTIVELY_ONCE, without a state store."""
    return exact_spec_maker(make_spec, server)


@pytest.fixture
def committing_spec(make_spec: MakeSpec, server: Server, state_url: str) -> ExactSpec:
    """Return specs of functions that are EFFECTIVELY_ONCE, with a state store."""
    return exact_spec_maker(make_spec, server, state_url)
