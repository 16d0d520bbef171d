"""`localrun` with a page of metrics and a provider of secrets."""

from __future__ import annotations

import re
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from magnetar.cli.main import main
from magnetar.client.client import AsyncClient

from tests.cli.test_local_run import local_run
from tests.support.eventually import eventually
from tests.support.function_topics import EARLIEST
from tests.support.instances import topic
from tests.support.servers import Server, running

__all__ = ["topic"]
pytestmark = pytest.mark.slow

CODE = """
def process(text, context):
    context.counter("words", {"kind": "all"}, "Words.").inc(len(text.split()))
    return f"{context.get_secret('key')} of {text}"
"""
VAULT = """
class Vault:
    def init(self, config):
        self.prefix = config["prefix"]

    def provide_secret(self, name, stored):
        return f"{self.prefix}{name}:{stored}"
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
    names = ("--classname", "code.process", "--inputs", topic, "--output", f"{topic}-out", "--name", "counting")
    return ("functions", "localrun", "--py", "code.py", *names, "--subs-position", "Earliest", *more)


async def pages(directory: Path, count: int) -> list[str]:
    """Return the addresses that a local run names."""

    async def found() -> list[str]:
        line = re.search(r"^metrics.*$", (directory / "out").read_text(), re.MULTILINE)
        return re.findall(r"http://127.0.0.1:\d+/metrics", line[0]) if line else []

    urls = await eventually(found, "line with the addresses")
    assert len(urls) == count
    return urls


async def answers(urls: list[str]) -> list[str]:
    async with httpx.AsyncClient() as http:
        return [(await http.get(url)).raise_for_status().text for url in urls]


@pytest.mark.parametrize(
    ("more", "count"), [((), 1), (("--parallelism", "2"), 1), (("--parallelism", "2", "--runtime", "process"), 2)]
)
async def test_a_local_run_has_pages_of_metrics(
    server: Server, client: AsyncClient, topic: str, tmp_path: Path, more: tuple[str, ...], count: int
) -> None:
    (tmp_path / "code.py").write_text(CODE)
    await (await client.create_producer(topic)).send(b"two words")
    with local_run(server, tmp_path, *flags(topic, "--metrics-port-start", "0", *more)):
        urls = await pages(tmp_path, count)
        consumer = await client.subscribe(f"{topic}-out", "test", EARLIEST)
        assert (await consumer.receive(60)).data == b"None of two words"

        async def counted() -> bool:
            text = "\n".join(await answers(urls))
            lines = [line for line in text.splitlines() if line.startswith("pulsar_function_received_total{")]
            assert len(lines) == (2 if more else 1), lines
            return 1.0 in [float(line.rpartition(" ")[2]) for line in lines]

        await eventually(counted, "the message among the numbers")
        every = await answers(urls)
        custom = [line for text in every for line in text.splitlines() if "custom_words_total{" in line]
    assert len(custom) == 1
    assert 'cluster="local",fqfn="public/default/counting"' in custom[0].replace(" ", "")
    assert custom[0].endswith(" 2.0")
    for number, text in enumerate(every if count == 2 else []):
        assert f'instance_id="{number}"' in text, "each page is of one instance"
        assert f'instance_id="{1 - number}"' not in text


async def test_a_sink_has_a_page_of_metrics(server: Server, client: AsyncClient, topic: str, tmp_path: Path) -> None:
    await (await client.create_producer(topic)).send(b"hey")
    call = ("sinks", "localrun", "--sink-type", "console", "--inputs", topic, "--subs-position", "Earliest")
    with local_run(server, tmp_path, *call, "--metrics-port-start", "0"):
        urls = await pages(tmp_path, 1)

        async def counted() -> bool:
            return bool(re.search(r"^pulsar_sink_received_total\{.*\} 1\.0$", (await answers(urls))[0], re.MULTILINE))

        await eventually(counted, "the message among the numbers")


@pytest.mark.parametrize("more", [(), ("--runtime", "process")])
async def test_a_provider_finds_the_secrets_of_a_local_run(
    server: Server, client: AsyncClient, topic: str, tmp_path: Path, more: tuple[str, ...]
) -> None:
    (tmp_path / "code.py").write_text(CODE)
    (tmp_path / "vault.py").write_text(VAULT)
    await (await client.create_producer(topic)).send(b"x")
    provider = ("--secrets-provider-classname", "vault.Vault", "--secrets-provider-config", '{"prefix": "v-"}')
    call = flags(topic, "--secrets", '{"key": {"at": 5}}', *provider, *more)
    with local_run(server, tmp_path, *call):
        consumer = await client.subscribe(f"{topic}-out", "test", EARLIEST)
        assert (await consumer.receive(60)).data == b"v-key:{'at': 5} of x"


def test_wrong_values_are_one_line(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "code.py").write_text(CODE)
    names = ("--py", str(tmp_path / "code.py"), "--classname", "code.process", "--inputs", "in")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for more, message in (
            (
                ("--metrics-port-start", port),
                f"--metrics-port-start {port}: cannot serve HTTP on 127.0.0.1:{port}: Address already in use: choose"
                " another port",
            ),
            (
                ("--metrics-port-start", "65535", "--parallelism", "2", "--runtime", "process"),
                "--metrics-port-start 65535: 2 instances need one port each, but the highest port is 65535: use a"
                " lower port",
            ),
            (
                ("--secrets-provider-config", "{}"),
                "--secrets-provider-config requires --secrets-provider-classname",
            ),
            (
                ("--secrets-provider-classname", "vault.Vault", "--secrets-provider-config", "[1]"),
                '--secrets-provider-config is not a JSON object: expected, for example, \'{"path": "/run/secrets"}\'',
            ),
        ):
            assert main(("--service-url", server.service_url, "functions", "localrun", *names, *more)) == 1
            assert capsys.readouterr().err == f"magnetar: {message}\n"


def test_a_provider_that_cannot_be_made_ends_the_run(
    server: Server, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "unsecret.py").write_text(CODE)
    names = ("--py", str(tmp_path / "unsecret.py"), "--classname", "unsecret.process", "--inputs", topic)
    secrets = ("--secrets", '{"key": "x"}', "--secrets-provider-classname", "no.such.Provider")
    assert main(("--service-url", server.service_url, "functions", "localrun", *names, *secrets)) == 1
    reason = capsys.readouterr().err.splitlines()[-1]
    assert "secretsProviderClassName no.such.Provider: ModuleNotFoundError" in reason
    assert reason.endswith("or in --secrets-provider-classname of localrun")
