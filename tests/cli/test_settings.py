from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from magnetar.cli.failure import Failure
from magnetar.cli.main import main
from magnetar.cli.settings import find_settings

from .conftest import Magnetar


@pytest.fixture(autouse=True)
def empty_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("MAGNETAR_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def test_flag_wins_over_environment_over_file_over_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_settings(None, None, None).admin_url == "http://127.0.0.1:8080"
    Path("client.yml").write_text("webServiceUrl: http://file:1/\nbrokerServiceUrl: pulsar://file:2\n")
    assert find_settings(None, None, None).admin_url == "http://file:1"
    assert find_settings(None, None, None).service_url == "pulsar://file:2"
    monkeypatch.setenv("MAGNETAR_ADMIN_URL", "http://environment:1")
    assert find_settings(None, None, None).admin_url == "http://environment:1"
    assert find_settings("http://flag:1", None, None).admin_url == "http://flag:1"


def test_unknown_key_of_the_client_file_is_refused_with_the_nearest() -> None:
    Path("client.yml").write_text("webServiceURL: http://file:1\n")
    with pytest.raises(Failure, match=r"client\.yml: unknown key 'webServiceURL'; did you mean webServiceUrl\?"):
        find_settings(None, None, None)


def test_named_client_file_must_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAGNETAR_CLIENT_CONF", "nowhere.yml")
    with pytest.raises(Failure, match=r"nowhere\.yml, which does not exist"):
        find_settings(None, None, None)


@pytest.mark.parametrize("arguments", [("--admin-url", "localhost:8080"), ("--service-url", "http://localhost:6650")])
def test_address_of_the_wrong_kind_is_refused(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments, "topics", "list"]) == 1
    assert arguments[1] in capsys.readouterr().err


def test_debug_shows_the_traceback_wherever_it_stands(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAGNETAR_DEBUG", "")  # so that what the call sets is undone
    monkeypatch.delenv("MAGNETAR_DEBUG")
    call = ["--admin-url", "http://127.0.0.1:1", "topics", "list"]
    assert main(call) == 1
    assert "Traceback" not in capsys.readouterr().err
    assert main([*call, "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err


SERVERS = {"uvloop", "starlette", "grpc", "google", "uvicorn"}


@pytest.mark.parametrize(
    ("arguments", "not_needed"),
    [(["--version"], SERVERS | {"httpx", "rich", "yaml"}), (["functions", "--help"], SERVERS)],
    ids=["version", "help of a group"],
)
def test_what_needs_no_server_imports_no_server(arguments: list[str], not_needed: set[str]) -> None:
    """`magnetar --version` answers in 60 ms because of this; a time would be a matter of the machine."""
    code = (
        "import sys; from magnetar.cli.main import main\n"
        f"main({arguments!r})\n"
        f"found = {not_needed!r} & set(sys.modules)\n"
        "sys.exit(str(found) if found else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.slow
@pytest.mark.parametrize("command", [("produce", "t", "-m", "x"), ("consume", "t", "-s", "s")])
def test_no_broker_there_names_the_remedy(
    magnetar: Magnetar, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr("magnetar.cli.messages.connecting.OPERATION_TIMEOUT_S", 0.3)
    result = magnetar("--service-url", "pulsar://127.0.0.1:1", *command)
    assert result.code == 1
    assert result.err.startswith(
        "magnetar: cannot reach pulsar://127.0.0.1:1: start a server with `magnetar standalone` or use --service-url ("
    )
    assert len(result.err.splitlines()) == 1
