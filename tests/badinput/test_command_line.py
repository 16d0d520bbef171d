"""Mistyped commands and servers that cannot start: one line, the cause, the remedy, exit code not 0."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import Answer, call
from tests.support.servers import Server

pytestmark = pytest.mark.slow


def start(data_dir: Path, *flags: str) -> Answer:
    return call("broker", "--data-dir", str(data_dir), "--broker-port", "0", "--web-port", "0", *flags)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("functions", "create", "--nonsense", "1"), ("--nonsense",)),
        (("functions", "crate"), ("crate",)),
        (("standalone", "--broker-prot", "0"), ("--broker-prot", "--broker-port")),
        (("broker", "--broker-port", "many"), ("many",)),
        (("produce",), ("TOPIC",)),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_mistyped_command_is_refused(arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    line = call(*arguments).refused()
    for word in words:
        assert word.lower() in line.lower(), line


@pytest.mark.parametrize(
    "arguments",
    [
        ("produce", "t", "--lines", "/dev/null", "-k", "caf\udce9"),
        ("packages", "get-metadata", "function://public/default/caf\udce9@1"),
        ("functions", "get", "--name", "caf\udce9"),
    ],
    ids=lambda value: value[0],
)
def test_an_argument_that_is_no_utf_8_is_named(arguments: tuple[str, ...]) -> None:
    call(*arguments).refused("'caf\\udce9", "is not valid UTF-8", "use UTF-8")


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield int(holder.getsockname()[1])


@pytest.mark.parametrize("flag", ["--broker-port", "--web-port"])
def test_port_in_use_is_named(tmp_path: Path, taken_port: int, flag: str) -> None:
    start(tmp_path / "data", flag, str(taken_port)).refused(str(taken_port), "in use", flag)


def test_worker_port_in_use_is_named(standalone: Server, tmp_path: Path, taken_port: int) -> None:
    urls = ("--service-url", standalone.service_url, "--admin-url", standalone.web_url)
    call("worker", "--data-dir", str(tmp_path), "--worker-port", str(taken_port), *urls).refused(
        str(taken_port), "in use", "--worker-port"
    )


def test_data_directory_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    start(tmp_path / "data").refused(str(tmp_path / "data"))
    assert (tmp_path / "data").read_text() == "a file"


def test_data_directory_that_cannot_be_made_is_named() -> None:
    start(Path("/proc/no-such-place/data")).refused("/proc/no-such-place")


def test_data_directory_of_another_broker_is_refused_and_unharmed(standalone: Server) -> None:
    data = standalone.directory / "data"
    start(data).refused(str(data), "in use")
    assert call("topics", "list", "public/default", admin_url=standalone.web_url).ok()


def test_unknown_key_in_a_config_file_is_refused_with_the_nearest(tmp_path: Path) -> None:
    config = tmp_path / "broker.yml"
    config.write_text("brokerServicePrt: 6650\n")
    start(tmp_path / "data", "--config", str(config)).refused("brokerServicePrt", "brokerServicePort")


def test_config_file_that_is_no_yaml_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "broker.yml"
    config.write_text("a: [1, 2\nb: }")
    start(tmp_path / "data", "--config", str(config)).refused(str(config))


@pytest.mark.parametrize("name", ["persistent://public", "weird://public/default/t", "a/b", "persistent://a//b"])
def test_invalid_topic_name_is_refused(standalone: Server, name: str) -> None:
    call("topics", "create", name, admin_url=standalone.web_url).refused(name)
    call("produce", name, "-m", "x", service_url=standalone.service_url).refused(name)


def test_server_that_is_not_there_is_named(taken_port: int) -> None:
    nobody = taken_port + 1 if taken_port < 65535 else 1
    call("functions", "list", admin_url=f"http://127.0.0.1:{nobody}").refused(f"127.0.0.1:{nobody}")
