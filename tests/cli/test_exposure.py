"""The address that a server listens on: others reach it only where who starts it says so."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from magnetar.cli.main import main
from magnetar.cli.servers.exposure import check_exposure, host_in_file, is_loopback, tell_exposure


@pytest.mark.parametrize("command", ["standalone", "broker", "worker", "state-store"])
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7"])
def test_server_is_not_started_where_others_reach_it(
    command: str, host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--host", host, "--data-dir", str(tmp_path / "data")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{host} is reachable from other machines" in line
    assert "--host 127.0.0.1" in line
    assert "--insecure" in line
    assert not (tmp_path / "data").exists()


def test_pulsars_default_address_in_a_file_becomes_loopback_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert host_in_file("0.0.0.0", is_open=False) == "127.0.0.1"
    assert "bindAddress=0.0.0.0 is Pulsar's default" in caplog.text
    assert "listening on 127.0.0.1 only" in caplog.text
    assert host_in_file("0.0.0.0", is_open=True) == "0.0.0.0"
    assert host_in_file("192.0.2.7", is_open=False) == "192.0.2.7"


def test_other_address_of_a_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("bindAddress=192.0.2.7\n")
    assert main(["broker", "--config", str(conf), "--data-dir", str(tmp_path / "data")]) == 1
    assert "192.0.2.7 is reachable from other machines" in capsys.readouterr().err


def test_start_says_who_may_do_everything(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="magnetar.cli.servers.exposure"):
        for host in ("127.0.0.1", "0.0.0.0"):
            check_exposure(host, is_insecure=True)
            tell_exposure(host, is_guarded=False)
        tell_exposure("0.0.0.0", is_guarded=True)
    on_loopback, elsewhere, guarded = caplog.records
    assert "all users of this machine" in on_loopback.getMessage()
    assert (elsewhere.levelname, "all clients that can reach 0.0.0.0" in elsewhere.getMessage()) == ("WARNING", True)
    assert (guarded.levelname, "open to authenticated clients" in guarded.getMessage()) == ("INFO", True)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True), ("127.8.9.10", True), ("::1", True), ("[::1]", True), ("localhost", True),
        ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("fe80::1", False), ("::ffff:10.0.0.1", False),
        ("", False), ("no such name", False), ("a" * 300, False), ("\N{SNOWMAN}" * 80, False),
    ],
)  # fmt: skip
def test_loopback_is_told_from_other_addresses(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_name_is_loopback_only_if_all_its_addresses_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(*addresses: str) -> Callable[..., list[Any]]:
        return lambda *_, **__: [(None, None, None, "", (address, 0)) for address in addresses]

    monkeypatch.setattr("socket.getaddrinfo", found("127.0.1.1", "::1"))
    assert is_loopback("own.example.com")
    monkeypatch.setattr("socket.getaddrinfo", found("127.0.1.1", "fe80::7%eth0"))
    assert not is_loopback("own.example.com")
