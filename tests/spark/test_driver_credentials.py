"""What tasks show on other machines: what their driver has at that moment. No Spark is needed."""

from __future__ import annotations

import contextlib
import json
import pickle
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from magnetar.errors import ConnectionLost, CredentialsUnavailable, InvalidConfig
from magnetar.security.client_credentials import ClientCredentials
from magnetar.security.credentials.authentication import METHOD_HEADER
from magnetar.security.credentials.client_security import ClientSecurity
from magnetar.spark.jobs import credential_questions, driver_credentials
from magnetar.spark.jobs.driver_credentials import CredentialsServer, DriverAuthentication
from magnetar.spark.jobs.function_run import SparkFunction
from magnetar.spark.source.options import read_options
from magnetar.spark.source.security_options import as_options

from tests.spark.specs import make_spec
from tests.support.waiting import wait_for


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("first")
    return path


@contextlib.contextmanager
def serving(security: ClientSecurity) -> Iterator[CredentialsServer]:
    with contextlib.closing(CredentialsServer("127.0.0.1", ClientCredentials(security))) as server:
        yield server


def of_file(file: Path, **more: Any) -> ClientSecurity:
    return ClientSecurity(auth_plugin="token", auth_params=file.as_uri(), **more)


def test_tasks_show_what_the_driver_has_by_then(file: Path) -> None:
    with serving(of_file(file, tls_trust_certs_file="/ca.pem")) as server:
        given = pickle.loads(pickle.dumps(server.security))
        task = ClientCredentials(given)
        assert (task.method, task.data()) == ("token", b"first")
        file.write_text("second")
        assert task.data() == b"second"
        assert task.headers() == {"Authorization": "Bearer second", METHOD_HEADER: "token"}
        assert given.tls_trust_certs_file == "/ca.pem"
        assert "first" not in json.dumps(given.to_dict())
        assert json.loads(given.auth_params)["key"] not in repr(given)


def test_nobody_else_is_answered(file: Path) -> None:
    with serving(of_file(file)) as server:
        where = json.loads(server.security.auth_params)
        wrong = replace(server.security, auth_params=json.dumps(where | {"key": "0" * 128}))
        with pytest.raises(ConnectionLost, match=r"the driver at 127.0.0.1:\d+ did not return credentials") as failed:
            ClientCredentials(wrong).data()
        assert "first" not in str(failed.value)
        for asked in (b"x" * 48, b"x" * 1000, where["key"].encode()):
            with socket.create_connection((where["host"], where["port"])) as stranger, contextlib.suppress(OSError):
                stranger.sendall(asked)
                assert stranger.recv(1) == b""
        assert ClientCredentials(server.security).data() == b"first"


def test_connections_that_do_not_ask_in_time_are_closed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credential_questions, "ASK_S", 0.1)
    with serving(of_file(file)) as server, contextlib.ExitStack() as stack:
        silent, dripping = (stack.enter_context(connected(server)) for _ in range(2))
        dripping.sendall(b"x")
        assert (silent.recv(1), dripping.recv(1)) == (b"", b"")
        assert ClientCredentials(server.security).data() == b"first"


@pytest.mark.parametrize("sent", [b"", b"x"])
def test_silent_connections_do_not_keep_tasks_out(file: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(credential_questions, "ASK_S", 3600)
    monkeypatch.setattr(credential_questions, "ASKING_MAX", 20)
    with serving(of_file(file)) as server, contextlib.ExitStack() as stack:
        silent = [stack.enter_context(connected(server)) for _ in range(50)]
        for connection in silent:
            with contextlib.suppress(OSError):  # closed already
                connection.sendall(sent)
        for _ in range(5):
            assert ClientCredentials(server.security).data() == b"first"
        for connection in silent[:30]:
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(1) == b""  # those that were silent for longest


def test_more_tasks_than_there_is_room_for_are_not_answered(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_credentials, "_WAITING_MAX", 1)
    is_asked, may_answer = threading.Event(), threading.Event()

    def slow(credentials: ClientCredentials) -> bytes:
        is_asked.set()
        assert may_answer.wait(60)
        return b"late"

    with serving(of_file(file)) as server, ThreadPoolExecutor() as executor:
        with monkeypatch.context() as patch:
            patch.setattr(ClientCredentials, "data", slow)
            driver_side = server.security
            first = executor.submit(DriverAuthentication(driver_side.auth_params).data)
            assert is_asked.wait(60)
            with pytest.raises(ConnectionLost, match="did not return credentials"):
                DriverAuthentication(driver_side.auth_params).data()
            may_answer.set()
            assert first.result(60) == b"late"
        wait_for(lambda: shown_by(server) == b"first", "room for a task", 60)


def test_a_question_that_waited_for_too_long_is_not_answered(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_credentials, "ANSWER_S", 0.0)
    with serving(of_file(file)) as server:
        question = server._key.question(b"r" * driver_credentials._RANDOM_BYTES)
        with connected(server) as task:
            task.sendall(question)
            assert task.recv(1) == b""


def connected(server: CredentialsServer) -> socket.socket:
    where = json.loads(server.security.auth_params)
    return socket.create_connection((where["host"], where["port"]), 60)


def shown_by(server: CredentialsServer) -> bytes | None:
    with contextlib.suppress(ConnectionLost):
        return ClientCredentials(server.security).data()
    return None


def test_neither_key_nor_token_crosses_the_network_and_an_old_answer_is_none(file: Path) -> None:
    with serving(of_file(file)) as server:
        where = json.loads(server.security.auth_params)
        with relay(where["host"], where["port"]) as (port, seen):
            watched = replace(server.security, auth_params=json.dumps(where | {"port": port}))
            assert ClientCredentials(watched).data() == b"first"
            [(asked, answered)] = seen
        key = bytes.fromhex(where["key"])
        assert answered
        for secret in (b"first", where["key"].encode(), key[:32], key[32:]):
            assert secret not in asked + answered
        with relay(where["host"], where["port"], answer=answered) as (port, _):
            watched = replace(server.security, auth_params=json.dumps(where | {"port": port}))
            with pytest.raises(ConnectionLost, match="the response does not match the request"):
                ClientCredentials(watched).data()


@contextlib.contextmanager
def relay(host: str, port: int, answer: bytes = b"") -> Iterator[tuple[int, list[tuple[bytes, bytes]]]]:
    """What lies between a task and its driver, once: its port, and what it saw; it may answer by itself."""
    seen: list[tuple[bytes, bytes]] = []

    def carry(listener: socket.socket) -> None:
        task, _ = listener.accept()
        with task:
            asked = task.recv(1000)
            with socket.create_connection((host, port)) as driver:
                driver.sendall(asked)
                answered = answer or b"".join(iter(lambda: driver.recv(1000), b""))
            seen.append((asked, answered))
            task.sendall(answered)

    with socket.create_server((host, 0)) as listener:
        thread = threading.Thread(target=carry, args=(listener,))
        thread.start()
        yield listener.getsockname()[1], seen
        thread.join()


def test_why_the_driver_has_nothing_to_show_is_told(file: Path) -> None:
    with serving(of_file(file)) as server:
        file.unlink()
        with pytest.raises(CredentialsUnavailable, match=r"in the driver: cannot read token file .*: No such"):
            ClientCredentials(server.security).data()


def test_a_driver_that_is_gone_is_lost(file: Path) -> None:
    with serving(of_file(file)) as server:
        pass
    with pytest.raises(ConnectionLost, match="is it still running and reachable from the executors"):
        ClientCredentials(server.security).data()


@pytest.mark.parametrize("params", ["", "{}", '{"method": "token", "host": "h", "port": "x", "key": "hidden"}', "[]"])
def test_the_plugin_is_for_tasks_alone(file: Path, params: str) -> None:
    with serving(of_file(file)) as server:
        plugin = server.security.auth_plugin
    with pytest.raises(InvalidConfig, match="this plugin is only for tasks of Spark functions") as failed:
        ClientCredentials(ClientSecurity(auth_plugin=plugin, auth_params=params or " "))
    assert "hidden" not in str(failed.value)


@pytest.mark.parametrize(
    ("master", "method", "asks"),
    [
        ("local[*]", "token", False),
        ("local[2,4]", "token", False),
        ("local-cluster[1,1,1024]", "token", True),
        ("spark://h:7077", "token", True),
        ("spark://h:7077", "basic", True),
        ("spark://h:7077", "tls", False),
        ("spark://h:7077", "", False),
    ],
)
def test_tasks_ask_the_driver_where_its_files_are_not(tmp_path: Path, master: str, method: str, asks: bool) -> None:
    params = {"token": "token:hidden", "basic": "user:hidden", "tls": "tlsCertFile:/c,tlsKeyFile:/k", "": ""}[method]
    spec = replace(make_spec(tmp_path), security=ClientSecurity(auth_plugin=method, auth_params=params))
    function = SparkFunction.__new__(SparkFunction)  # loading it would ask a broker
    function.spec, function._credentials, function._installed = spec, None, None
    context: Any = SimpleNamespace(master=master, getConf=lambda: {"spark.driver.host": "127.0.0.1"})
    given = function.spec_for_tasks(context)
    try:
        assert (given.security != spec.security) == asks
        assert ("hidden" in str(given.security.to_dict())) == (not asks and method == "token")
        assert function.spec_for_tasks(context).to_json() == given.to_json()
        if asks:
            assert ClientCredentials(given.security).data() == ClientCredentials(spec.security).data()
    finally:
        function.close()
    assert cast(Any, function)._credentials is None


def test_settings_become_the_options_that_mean_them() -> None:
    security = ClientSecurity(
        auth_plugin="token", auth_params="x", tls_trust_certs_file="/ca.pem", tls_hostname_verification=False
    )
    for url in ("pulsar+ssl://h", "pulsar://h"):
        options = as_options(security, url)
        found = read_options({"service.url": url, "topic": "t", **options}).security
        assert found == (security if "ssl" in url else ClientSecurity(auth_plugin="token", auth_params="x"))
