"""`localrun` of sources and sinks: instances in the foreground, from a file or an installed package, until SIGINT."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from magnetar.client.client import AsyncClient

from tests.support.eventually import eventually
from tests.support.function_topics import EARLIEST
from tests.support.instances import topic
from tests.support.servers import COMMAND, Server, running

__all__ = ["topic"]
pytestmark = pytest.mark.slow

TICKER = """
import time
from magnetar import Record, Source

class Ticker(Source):
    def open(self, config, context):
        self.number = context.position or 0
        print("begins at", self.number)

    def read(self):
        time.sleep(0.01)
        self.number += 1
        return Record(f"{self.number}", key=__name__)

    def snapshot(self):
        return self.number
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("standalone", tmp_path_factory.mktemp("standalone")) as server:
        yield server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server.service_url) as client:
        yield client


@contextmanager
def local_run(
    server: Server, directory: Path, *arguments: str, **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A `magnetar … localrun` whose output is in the file `out`; it has ended in order afterwards."""
    temporary = directory / f"tmp-{'long' * 20}"  # the paths of sockets below would be longer than they may be
    own = {"TMPDIR": str(temporary), "MAGNETAR_ADMIN_URL": server.web_url, **environment}
    temporary.mkdir(exist_ok=True)
    flags = ("--broker-service-url", server.service_url)
    with (directory / "out").open("wb") as out:
        process = subprocess.Popen(
            [*COMMAND, *arguments, *flags], stdout=out, stderr=out, env={**os.environ, **own}, cwd=directory
        )
        try:
            yield process
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0, (directory / "out").read_text()
            assert list(temporary.iterdir()) == []
        finally:
            process.kill()
            process.wait()


def wheel(directory: Path) -> Path:
    """A package with an entry point, as its author would build it."""
    path, info = directory / "ticking-1.0-py3-none-any.whl", "ticking-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("ticking/__init__.py", TICKER)
        file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: ticking\nVersion: 1.0\n")
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/entry_points.txt", "[magnetar.connectors]\nticking = ticking:Ticker\n")
        names = [*file.namelist(), f"{info}/RECORD"]
        file.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in names))
    return path


def install(package: Path, target: Path) -> None:
    """Install a wheel into a directory."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(target)]
    subprocess.run([*pip, str(package)], check=True, timeout=120)


async def first(client: AsyncClient, topic: str, subscription: str = "test") -> tuple[int, str | None]:
    consumer = await client.subscribe(topic, subscription, EARLIEST)
    message = await consumer.receive(30)
    await consumer.close()
    return int(message.data), message.key


async def test_a_source_goes_on_where_it_was(server: Server, client: AsyncClient, topic: str, tmp_path: Path) -> None:
    (tmp_path / "ticker.py").write_text(TICKER)
    state = str(server.addresses["stateStorageServiceUrl"])
    call = ("sources", "localrun", "--archive", "ticker.py", "-o", topic, "--state-storage-service-url", state)
    for runtime in ("thread", "process"):
        with local_run(server, tmp_path, *call, "--runtime", runtime):
            assert (await first(client, topic, runtime))[0] == 1

            async def has_begun() -> str | None:
                lines = [line for line in (tmp_path / "out").read_text().splitlines() if "begins at" in line]
                return lines[0] if lines else None

            try:
                began = await eventually(has_begun, "line of the source")
            except AssertionError:
                raise AssertionError((tmp_path / "out").read_text()) from None
    assert int(began.rpartition(" ")[2]) > 0


async def test_a_sink_shows_messages_and_why_it_does_not_go_on(
    server: Server, client: AsyncClient, topic: str, tmp_path: Path
) -> None:
    await (await client.create_producer(topic)).send("grüße".encode())
    call = ("sinks", "localrun", "--inputs", topic, "--subs-position", "Earliest", "--parallelism", "2")

    async def shows(text: str) -> bool:
        return text in (tmp_path / "out").read_text()

    with local_run(server, tmp_path, *call, "--sink-type", "console", "--subs-name", "a"):
        await eventually(lambda: shows("grüße"), "the message")
    configs = '{"url": "http://127.0.0.1:9"}'
    with local_run(server, tmp_path, *call, "--sink-type", "http", "--sink-config", configs, "--subs-name", "b"):
        await eventually(lambda: shows("magnetar: instance "), "trouble of an instance")
    assert "retrying: http://127.0.0.1:9" in (tmp_path / "out").read_text()


async def test_a_transform_function_comes_along(
    server: Server, client: AsyncClient, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "short.py").write_text("def process(x): return x[:6]\n")
    call = ("sources", "localrun", "--source-type", "generator", "-o", topic, "--transform-function", "short.py")
    with local_run(server, tmp_path, *call, "--transform-function-classname", "short.process"):
        consumer = await client.subscribe(topic, "test", EARLIEST)
        assert (await consumer.receive(30)).data == b'{"id":'


async def test_a_connector_of_another_package_is_found_or_uploaded(
    server: Server, client: AsyncClient, topic: str, tmp_path: Path
) -> None:
    package, target = wheel(tmp_path), tmp_path / "site"
    install(package, target)
    installed = ("sources", "localrun", "--source-type", "ticking", "-o", f"{topic}-installed")
    with local_run(server, tmp_path, *installed, PYTHONPATH=str(target)):
        assert await first(client, f"{topic}-installed") == (1, "ticking")
    with local_run(server, tmp_path, "sources", "localrun", "--archive", package.name, "-o", f"{topic}-uploaded"):
        assert (await first(client, f"{topic}-uploaded"))[0] == 1
