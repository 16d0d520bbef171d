"""Commands that are pointed at a port where something else listens, or where nothing ever answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from magnetar.cli import reach, rest
from magnetar.cli.failure import Failure
from magnetar.cli.main import main
from magnetar.runtime.foreground import without_counts
from magnetar.security.credentials.client_security import ClientSecurity

Answer = Callable[[socket.socket], object]


@contextmanager
def listening(answer: Answer) -> Iterator[int]:
    """A port where each connection is given to ``answer`` and closed once the client has gone."""
    held: list[socket.socket] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                held.append(connection)
                answer(connection)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(30)
            for connection in held:
                connection.close()


def silent(_: socket.socket) -> None:
    """Take the connection and say nothing."""


def web(connection: socket.socket) -> None:
    """Answer as a web server does to what is no HTTP."""
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def closes(connection: socket.socket) -> None:
    """Read the request and end the connection, as a broker's port does."""
    connection.recv(4096)
    connection.shutdown(socket.SHUT_RDWR)


def grpc(connection: socket.socket) -> None:
    """Begin with a frame of HTTP/2, as a state store does."""
    connection.sendall(b"\0\0\x18\x04\0\0\0\0\0" + bytes(24))
    connection.shutdown(socket.SHUT_WR)


@pytest.fixture
def function_with_state(tmp_path: Path) -> Path:
    code = tmp_path / "counting.py"
    code.write_text("def process(text, context):\n    context.incr_counter('messages', 1)\n")
    return code


def localrun(code: Path, port: int, *more: str) -> int:
    return main(
        ["functions", "localrun", "--py", str(code), "--classname", "counting.process", "--inputs", "in",
         "--broker-service-url", f"pulsar://127.0.0.1:{port}", *more]
    )  # fmt: skip


def test_localrun_on_an_http_port_names_the_port_and_not_the_missing_state_store(
    function_with_state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with listening(web) as port:
        assert localrun(function_with_state, port) == 1
    assert capsys.readouterr().err == (
        f"magnetar: 127.0.0.1:{port} is an HTTP port: use the broker's service port, for example"
        " pulsar://127.0.0.1:6650\n"
    )


@pytest.mark.parametrize("answer", [silent, closes])
def test_localrun_without_a_handshake_fails_in_one_line(
    answer: Answer,
    function_with_state: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(reach, "HANDSHAKE_TIMEOUT_S", 0.2)
    with listening(answer) as port:
        assert localrun(function_with_state, port) == 1
    error = capsys.readouterr().err
    assert error.startswith(
        f"magnetar: cannot reach pulsar://127.0.0.1:{port}: start a server with `magnetar standalone`"
    )
    assert "--broker-service-url" in error
    assert len(error.splitlines()) == 1


def test_localrun_of_a_sink_on_a_silent_port_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reach, "HANDSHAKE_TIMEOUT_S", 0.2)
    with listening(silent) as port:
        flags = ["--broker-service-url", f"pulsar://127.0.0.1:{port}"]
        assert main(["sinks", "localrun", "--sink-type", "console", "--inputs", "in", *flags]) == 1
    assert f"(handshake with 127.0.0.1:{port} timed out after 0.2 s)" in capsys.readouterr().err


def test_produce_to_a_silent_port_names_the_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("magnetar.cli.messages.connecting.HANDSHAKE_TIMEOUT_S", 0.2)
    with listening(silent) as port:
        assert main(["produce", "t", "-m", "x", "--service-url", f"pulsar://127.0.0.1:{port}"]) == 1
    error = capsys.readouterr().err
    assert "start a server with `magnetar standalone` or use --service-url (handshake with" in error


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(closes, "the server closed the connection without a response"), (grpc, "the response starts with ")],
)
def test_a_list_from_a_port_without_http_names_the_web_port(
    answer: Answer, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with listening(answer) as port:
        assert main(["functions", "list", "--admin-url", f"http://127.0.0.1:{port}"]) == 1
    error = capsys.readouterr().err
    assert error.startswith(
        f"magnetar: http://127.0.0.1:{port} did not respond like an HTTP server: check that --admin-url is a web port"
    )
    assert f"({reason}" in error
    assert len(error.splitlines()) == 1


def test_a_list_from_a_silent_port_ends(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(rest, "READ_TIMEOUT_S", 0.2)
    with listening(silent) as port:
        assert main(["functions", "list", "--admin-url", f"http://127.0.0.1:{port}"]) == 1
    assert f"http://127.0.0.1:{port} did not respond within 0.2 s: check that --admin-url" in capsys.readouterr().err


def test_waiting_longer_is_no_other_trouble() -> None:
    assert without_counts("input topic in: not open after 5 s; no reply yet") == without_counts(
        "input topic in: not open after 6 s; no reply yet"
    )
    assert without_counts("retrying (3 attempts): a") == without_counts("retrying (4 attempts): a")
    assert without_counts("retrying (3 attempts): a") != without_counts("retrying (3 attempts): b")


async def test_tls_settings_for_a_state_store_do_not_keep_from_a_plain_broker() -> None:
    security = ClientSecurity(tls_trust_certs_file="ca.pem")
    with listening(closes) as port, pytest.raises(Failure, match=f"cannot reach pulsar://127.0.0.1:{port}: start a"):
        await reach.check_broker(f"pulsar://127.0.0.1:{port}", "http://127.0.0.1:1", security, "--broker-service-url")
