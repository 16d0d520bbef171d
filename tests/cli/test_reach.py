"""Finding out within two seconds that nothing listens at a broker's address."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest
from magnetar.cli.main import main
from magnetar.cli.reach import REACH_TIMEOUT_S


def produce_to(host: str) -> int:
    return main(["--service-url", f"pulsar://{host}:6650", "produce", "t", "-m", "x"])


def test_a_name_server_that_does_not_answer_does_not_hold_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    released, resolve = threading.Event(), socket.getaddrinfo
    ended = threading.Event()

    def hanging(host: Any, *args: Any, **flags: Any) -> Any:
        if host != "broker.example":
            return resolve(host, *args, **flags)
        released.wait(60)
        ended.set()
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    try:
        assert produce_to("broker.example") == 1
        assert not ended.is_set(), "the command has waited for the name server"
    finally:
        released.set()
    assert ended.wait(60)
    assert f"(no connection to broker.example:6650 within {REACH_TIMEOUT_S:g} s)" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["broker.invalid", "x" * 64], ids=["unknown", "too long a label"])
def test_a_host_that_does_not_exist_is_named(
    host: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    resolve = socket.getaddrinfo

    def offline(name: Any, *args: Any, **flags: Any) -> Any:
        if name == "broker.invalid":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return resolve(name, *args, **flags)

    monkeypatch.setattr(socket, "getaddrinfo", offline)
    assert produce_to(host) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"magnetar: cannot reach pulsar://{host}:6650: start a server with `magnetar standalone`")
    assert f"(cannot connect to {host}:6650: " in error
    assert len(error.splitlines()) == 1
