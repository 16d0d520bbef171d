"""Run a broker as a child process, and create topics and specs for instances."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from magnetar.client.client import AsyncClient
from magnetar.config.connector_conversion import IDENTITY
from magnetar.instance.spec import InstanceSpec
from magnetar.runtime.interface import Runtime
from magnetar.runtime.process.runtime import ProcessRuntime
from magnetar.runtime.thread.runtime import ThreadRuntime
from magnetar.wire import functions_pb2 as records

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
    """Return a unique topic name for this test; append suffixes for more topics."""
    name = re.sub(r"\W+", "-", request.node.name).strip("-")
    return f"persistent://public/default/{name}-{uuid.uuid4().hex[:8]}"


MakeSpec = Callable[..., InstanceSpec]


@pytest.fixture
def make_spec(server: Server, tmp_path: Path, topic: str) -> MakeSpec:
    """Return a function that creates specs of functions from their code."""
    return spec_maker(server.service_url, tmp_path, topic)


def spec_maker(service_url: str, tmp_path: Path, topic: str) -> MakeSpec:
    def make(
        code: str | dict[str, str] = "",
        class_name: str = "",
        instance_id: int = 0,
        **details: object,
    ) -> InstanceSpec:
        package = tmp_path / f"package-{uuid.uuid4().hex[:8]}"
        package.mkdir()
        for name, text in ({"user_code.py": code} if isinstance(code, str) else code).items():
            (package / name).parent.mkdir(parents=True, exist_ok=True)
            (package / name).write_text(text)
        values: dict[str, object] = {"tenant": "public", "namespace": "default", "name": "f", "autoAck": True}
        if not class_name:  # a connector's is its transform function
            class_name = IDENTITY if "componentType" in details else "user_code.process"
        values |= {"className": class_name} | details
        function = records.FunctionDetails(**values)  # type: ignore[arg-type]
        if not function.source.inputSpecs:
            function.source.inputSpecs[f"{topic}-in"].SetInParent()
        function.source.subscriptionPosition = records.EARLIEST
        if not function.sink.topic and "none" not in (function.sink.typeClassName, function.sink.builtin):
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


@pytest.fixture(params=["thread", "process"])
async def any_runtime(request: pytest.FixtureRequest, server: Server) -> AsyncIterator[Runtime]:
    runtime: Runtime = ThreadRuntime(server.service_url) if request.param == "thread" else ProcessRuntime()
    yield runtime
    await runtime.close()
