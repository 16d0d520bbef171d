"""`functions localrun`: in this process, with a breakpoint, and again after each save."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from magnetar.cli.main import main
from magnetar.client.client import AsyncClient
from magnetar.worker.config import WorkerConfig
from magnetar.worker.service import WorkerService

from tests.cli.test_local_run import local_run
from tests.support.eventually import eventually
from tests.support.function_topics import EARLIEST
from tests.support.instances import topic
from tests.support.servers import COMMAND, Server, running
from tests.support.wheels import wheel

__all__ = ["topic"]
pytestmark = pytest.mark.slow

SHOUT = """
def process(text, context):
    print("took", text)
    context.get_logger().info("instance %s", context.get_instance_id())
    return f"{text}!"
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("standalone", tmp_path_factory.mktemp("standalone")) as server:
        yield server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server.service_url) as client:
        yield client


def flags(topic: str, *more: str) -> tuple[str, ...]:
    names = ("--classname", "code.process", "--inputs", topic, "--output", f"{topic}-out", "--name", "shout")
    return ("functions", "localrun", "--py", "code.py", *names, "--subs-position", "Earliest", *more)


@pytest.mark.parametrize("more", [(), ("--parallelism", "2"), ("--runtime", "PROCESS")])
async def test_a_function_runs_here(
    server: Server, client: AsyncClient, topic: str, tmp_path: Path, more: tuple[str, ...]
) -> None:
    (tmp_path / "code.py").write_text(SHOUT)
    await (await client.create_producer(topic)).send(b"hey")
    with local_run(server, tmp_path, *flags(topic, "--instance-id-offset", "7", *more)):
        consumer = await client.subscribe(f"{topic}-out", "test", EARLIEST)
        assert (await consumer.receive(60)).data == b"hey!"
    out = (tmp_path / "out").read_text()
    assert "took hey" in out
    assert re.search(r"instance [78]", out)


COUNT = """
def process(text, context):
    context.incr_counter("n", 1)
    return f"{text} {context.get_counter('n')}"
"""


@pytest.mark.parametrize("more", [(), ("--parallelism", "2")])
async def test_state_is_kept_in_the_state_store_of_the_broker(
    server: Server, client: AsyncClient, topic: str, tmp_path: Path, more: tuple[str, ...]
) -> None:
    (tmp_path / "code.py").write_text(COUNT)
    await (await client.create_producer(topic)).send(b"hey")
    with local_run(server, tmp_path, *flags(topic, "--name", f"counting{len(more)}", *more)):
        consumer = await client.subscribe(f"{topic}-out", "test", EARLIEST)
        assert (await consumer.receive(60)).data == b"hey 1"
    assert f"using the state store of the broker at {server.web_url}" in (tmp_path / "out").read_text()


async def test_another_worker_uses_the_state_store_of_the_broker(server: Server, tmp_path: Path) -> None:
    config = WorkerConfig(
        service_url=server.service_url, admin_url=server.web_url, data_dir=tmp_path, worker_port=0,
        functions_namespace="public/other-functions",
    )  # fmt: skip
    service = WorkerService(config)
    await service.start()
    try:
        assert service.config.state_url == server.addresses["stateStorageServiceUrl"]
    finally:
        await service.stop()


@pytest.mark.parametrize(
    "command",
    [
        ("functions", "localrun", "--py", "code.py", "--classname", "code.process", "--inputs", "in"),
        ("functions", "localrun", "--py", "code.py", "--classname", "code.process", "--inputs", "in", "--reload"),
        ("sinks", "localrun", "--sink-type", "console", "--inputs", "in"),
        ("sources", "localrun", "--source-type", "generator", "--destination-topic-name", "out"),
    ],
    ids=lambda command: f"{command[0]} {command[-1]}",
)
def test_without_a_broker_it_ends_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    (tmp_path / "code.py").write_text(SHOUT)
    monkeypatch.chdir(tmp_path)
    assert main([*command, "--broker-service-url", "pulsar://127.0.0.1:1"]) == 1
    assert capsys.readouterr().err.startswith(
        "magnetar: cannot reach pulsar://127.0.0.1:1: start a server with `magnetar standalone` or use"
        " --broker-service-url (cannot connect to 127.0.0.1:1: "
    )


@pytest.mark.parametrize("is_there", [False, True], ids=["no REST", "REST of another broker"])
def test_state_without_a_state_store_is_refused(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], is_there: bool
) -> None:
    (tmp_path / "code.py").write_text(COUNT)
    names = ("--py", str(tmp_path / "code.py"), "--classname", "code.process", "--inputs", "in")
    with running("broker", tmp_path / "other") as broker:
        admin_url = server.web_url if is_there else "http://127.0.0.1:1"
        urls = ("--admin-url", admin_url, "--service-url", broker.service_url)
        assert main([*urls, "functions", "localrun", *names]) == 1
    assert (
        "code.process calls incr_counter on line 3 of code.py, but no state store is configured"
        in capsys.readouterr().err
    )


async def test_requirements_are_installed_where_later_runs_find_them(
    server: Server, client: AsyncClient, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, code = tmp_path / "cache", tmp_path / "package"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    wheel(code / "deps", "1.0")
    (code / "requirements.txt").write_text("greeting-parts")
    (code / "code.py").write_text("import greeting_parts\n\ndef process(x):\n    return greeting_parts.VERSION + x\n")
    await (await client.create_producer(topic)).send(b" hey")
    arguments = ["package" if one == "code.py" else one for one in flags(topic)]
    with local_run(server, tmp_path, *arguments):
        consumer = await client.subscribe(f"{topic}-out", "test", EARLIEST)
        assert (await consumer.receive(60)).data == b"1.0 hey"
    assert len(list((cache / "magnetar" / "requirements").iterdir())) == 1


def test_what_cannot_be_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "code.py").write_text(SHOUT)
    code = str(tmp_path / "code.py")
    names = ("functions", "localrun", "--inputs", "in", "--classname")
    for arguments, message in (
        ((*names, "code.missing", "--py", code), "module code has no missing"),
        ((*names, "code.process", "--py", str(tmp_path / "none.py")), "does not exist"),
        ((*names, "code.process", "--py", "http://127.0.0.1/code.py"), "only supports local files"),
        ((*names, "code.process"), "no code specified"),
        ((*names, "code.process", "--py", code, "--runtime", "spark"), "requires a worker"),
        ((*names, "code.process", "--py", code, "--use-tls"), "requires an address with TLS"),
        ((*names, "code.process", "--py", str(tmp_path / "none.py"), "--reload"), "cannot watch"),
    ):
        assert main(arguments) == 1, arguments
        assert message in capsys.readouterr().err


@pytest.mark.parametrize("command", ["create", "localrun"])
def test_types_that_contradict_the_config_are_one_line(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    (tmp_path / "code.py").write_text("def process(order: dict): return\n")
    names = ("--py", str(tmp_path / "code.py"), "--classname", "code.process", "--name", "contradicting")
    serdes = ("--custom-serde-inputs", '{"in": "IdentitySerDe"}')
    addresses = ("--admin-url", server.web_url, "--service-url", server.service_url)
    more = ("--parallelism", "2") if command == "localrun" else ()
    assert main((*addresses, "functions", command, *names, *serdes, *more)) == 1
    said = capsys.readouterr().err
    assert said.removesuffix(" (HTTP 400)\n").rstrip() == (
        "magnetar: inputSpecs[in].serdeClassName IdentitySerDe supports bytes, float, int, str, but parameter order of"
        " code.process is dict: remove one of them"
    )


async def test_a_save_begins_it_again_and_loses_nothing(
    server: Server, client: AsyncClient, topic: str, tmp_path: Path
) -> None:
    code = tmp_path / "code.py"
    code.write_text("def process(text): return f'{text} 0'\n")
    producer, rounds, each = await client.create_producer(topic), 3, 100
    consumer = await client.subscribe(f"{topic}-out", "test", EARLIEST)
    came: dict[str, set[str]] = {}
    with local_run(server, tmp_path, *flags(topic, "--reload")):
        for version in range(rounds):
            if version:
                code.write_text(f"def process(text): return f'{{text}} {version}'\n")
            for number in range(each):
                await producer.send(f"m{version}-{number}".encode())
            await producer.send(f"last{version}".encode())
            while str(version) not in came.get(f"last{version}", ()):
                text, _, by = (await consumer.receive(60)).data.decode().partition(" ")
                came.setdefault(text, set()).add(by)
                if text == f"last{version}" and by != str(version):  # the old one was faster than the save was seen
                    await producer.send(text.encode())
    wanted = {f"m{version}-{number}" for version in range(rounds) for number in range(each)}
    assert not wanted - set(came)


async def test_a_mistake_is_said_and_the_next_save_mends_it(
    server: Server, client: AsyncClient, topic: str, tmp_path: Path
) -> None:
    code = tmp_path / "code.py"
    code.write_text("def process(text): return\ndef process(:\n")
    await (await client.create_producer(topic)).send(b"hey")

    async def shows(text: str) -> bool:
        return text in (tmp_path / "out").read_text()

    with local_run(server, tmp_path, *flags(topic, "--reload")):
        await eventually(lambda: shows("process exited, restarting when a file is saved"), "the end")
        assert "magnetar: code.py has a syntax error on line 2" in (tmp_path / "out").read_text()
        code.write_text(SHOUT)
        consumer = await client.subscribe(f"{topic}-out", "test", EARLIEST)
        assert (await consumer.receive(60)).data == b"hey!"


async def test_a_breakpoint_stops_in_the_terminal(
    server: Server, client: AsyncClient, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "code.py").write_text("def process(text):\n    shown = text * 2\n    breakpoint()\n    return shown\n")
    await (await client.create_producer(topic)).send(b"ab")
    main, side = pty.openpty()
    process = begin([*flags(topic), "--broker-service-url", server.service_url], side, tmp_path)
    try:
        screen = read_until(main, lambda text: "(Pdb)" in text)
        assert "breakpoint()" in screen or "return shown" in screen
        os.write(main, b"p shown + '-seen'\n")
        read_until(main, lambda text: "'abab-seen'" in text)
        os.write(main, b"c\n")
        consumer = await client.subscribe(f"{topic}-out", "test", EARLIEST)
        assert (await consumer.receive(60)).data == b"abab"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(main)


def begin(arguments: list[str], terminal: int, directory: Path) -> subprocess.Popen[bytes]:
    """A command with a terminal."""
    environment = {**os.environ, "TERM": "dumb"}
    try:
        return subprocess.Popen(
            [*COMMAND, *arguments], stdin=terminal, stdout=terminal, stderr=terminal, cwd=directory, env=environment
        )
    finally:
        os.close(terminal)


def read_until(descriptor: int, is_there: Callable[[str], bool]) -> str:
    text, until_s = "", time.monotonic() + 60
    os.set_blocking(descriptor, False)
    while not is_there(text):
        assert time.monotonic() < until_s, text
        try:
            text += os.read(descriptor, 4096).decode(errors="replace")
        except BlockingIOError:
            select.select([descriptor], [], [], 1)
    return text
