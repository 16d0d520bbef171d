"""TLS and credentials of connections, against a broker that says what a test wants."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvloop
from magnetar.client import (
    AsyncClient,
    Authentication,
    AuthenticationBasic,
    AuthenticationError,
    AuthenticationTls,
    AuthenticationToken,
    Client,
    ClientConfig,
    ConnectionLost,
    CredentialsUnavailable,
    InvalidConfig,
    OperationTimeout,
    ProducerConfig,
    ProtocolError,
    TlsFailed,
)
from magnetar.client.connections.introduction import Introduction
from magnetar.client.deploy.rest import derive_admin_url
from magnetar.security.client_credentials import ClientCredentials
from magnetar.wire.commands import NO_REQUEST
from magnetar.wire.frames import encode_frame
from magnetar.wire.pulsar_api_pb2 import (
    AuthData,
    BaseCommand,
    CommandAuthChallenge,
    CommandLookupTopicResponse,
    ServerError,
)

from tests.client.scripted import ScriptedBroker, connected, refused
from tests.support.certificates import Authority, server_context
from tests.support.eventually import eventually

TOPIC = "persistent://public/default/t"
UNRETRIED_S = 10.0
"""Below the operation timeout of the clients here: what fails so soon was not tried again."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@contextlib.asynccontextmanager
async def secure_broker(context: Any) -> AsyncIterator[ScriptedBroker]:
    broker = ScriptedBroker()
    broker.tls = context
    async with broker:
        yield broker


def config(authority: Authority | None = None, **settings: Any) -> ClientConfig:
    if authority is not None:
        settings["tls_trust_certs_file"] = str(authority.file)
    return ClientConfig(operation_timeout_s=30, backoff_initial_ms=5, backoff_max_ms=20, **settings)


async def soon(condition: Callable[[], object], what: str) -> None:
    async def ask() -> object:
        return condition()

    await eventually(ask, what)


@contextlib.contextmanager
def raised_soon(kind: type[Exception], match: str) -> Iterator[None]:
    """What is in here fails at once: trying again would take as long as an operation may."""
    began = time.monotonic()
    with pytest.raises(kind, match=match) as failed:
        yield
    assert time.monotonic() - began < UNRETRIED_S
    assert "\n" not in str(failed.value)


# -- TLS --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("payload_bytes", [10, 300_000])
async def test_messages_go_through_tls(authority: Authority, payload_bytes: int) -> None:
    payload = os.urandom(payload_bytes)
    async with (
        secure_broker(server_context(authority.issue("broker"))) as broker,
        AsyncClient(broker.service_url, config(authority)) as client,
    ):
        producer = await client.create_producer(TOPIC, ProducerConfig(batching=False))
        await producer.send(payload)
        assert broker.received[-1][1].endswith(payload)


async def test_the_authority_must_be_known(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path)
    async with secure_broker(server_context(other.issue("broker"))) as broker:
        for given in (config(authority), config()):
            async with AsyncClient(broker.service_url, given) as client:
                with raised_soon(
                    TlsFailed, r"rejected the certificate of 127.0.0.1:\d+: .*: set tls_trust_certs_file to the CA"
                ):
                    await client.create_producer(TOPIC)
        async with AsyncClient(broker.service_url, config(tls_allow_insecure_connection=True)) as client:
            await client.create_producer(TOPIC)


async def test_the_certificate_must_name_the_host(authority: Authority) -> None:
    async with secure_broker(server_context(authority.issue("broker", ["elsewhere.example"]))) as broker:
        async with AsyncClient(broker.service_url, config(authority)) as client:
            with raised_soon(TlsFailed, "IP address mismatch.*: connect with a host name in the certificate"):
                await client.create_producer(TOPIC)
        async with AsyncClient(broker.service_url, config(authority, tls_hostname_verification=False)) as client:
            await client.create_producer(TOPIC)


async def test_an_expired_certificate_is_refused(authority: Authority) -> None:
    expired = authority.issue("broker", file_name="expired", is_expired=True)
    async with (
        secure_broker(server_context(expired)) as broker,
        AsyncClient(broker.service_url, config(authority)) as client,
    ):
        with raised_soon(TlsFailed, "rejected the certificate of .*: certificate has expired"):
            await client.create_producer(TOPIC)


async def test_a_broker_may_ask_for_a_certificate(authority: Authority) -> None:
    context = server_context(authority.issue("broker"), authority, requires_certificate=True)
    mine = authority.issue("consumer", [])
    as_settings = config(authority, tls_certificate_file=str(mine.file), tls_key_file=str(mine.key_file))
    as_method = config(authority, authentication=AuthenticationTls(str(mine.file), str(mine.key_file)))
    async with secure_broker(context) as broker:
        for given in (as_settings, as_method):
            async with AsyncClient(broker.service_url, given) as client:
                await client.create_producer(TOPIC)
        assert [one.connect.auth_method_name for one in broker.commands(BaseCommand.CONNECT)] == ["none", "tls"]
        brief = replace(config(authority), operation_timeout_s=0.1)
        async with AsyncClient(broker.service_url, brief) as client:
            # asyncio's servers do not send what they say of it
            with pytest.raises(ConnectionLost, match=r"before it answered; it may require a client certificate"):
                await client.create_producer(TOPIC)


async def test_a_broker_that_misses_a_certificate_is_believed_at_once(authority: Authority) -> None:
    context = server_context(authority.issue("broker"), authority, requires_certificate=True)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, connection.dup() as raw, contextlib.suppress(ConnectionResetError):
                with contextlib.suppress(ssl.SSLError):
                    context.wrap_socket(connection, server_side=True)
                while raw.recv(4096):  # what nobody has read makes the end a reset, which overtakes the alert
                    pass

        serving = asyncio.to_thread(serve)
        async with asyncio.TaskGroup() as group:
            group.create_task(serving)
            async with AsyncClient(f"pulsar+ssl://127.0.0.1:{listener.getsockname()[1]}", config(authority)) as client:
                with raised_soon(TlsFailed, r"certificate required\): use a client certificate that it trusts"):
                    await client.create_producer(TOPIC)


@pytest.mark.parametrize(
    "scenario",
    [
        partial(test_messages_go_through_tls, payload_bytes=300_000),
        test_the_certificate_must_name_the_host,
        test_a_broker_may_ask_for_a_certificate,
        test_a_broker_that_misses_a_certificate_is_believed_at_once,
    ],
)
def test_the_event_loop_of_servers_does_the_same(scenario: Callable[..., Any], authority: Authority) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario(authority))


async def test_certificates_are_read_anew_for_new_connections(authority: Authority, tmp_path: Path) -> None:
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(Authority(tmp_path / "other").file.read_bytes())
    async with (
        secure_broker(server_context(authority.issue("broker"))) as broker,
        AsyncClient(broker.service_url, config(tls_trust_certs_file=str(trusted))) as client,
    ):
        with raised_soon(TlsFailed, "rejected the certificate"):
            await client.create_producer(TOPIC)
        trusted.write_bytes(authority.file.read_bytes())
        await client.create_producer(TOPIC)


async def test_a_producer_comes_back_once_its_certificates_are_there_again(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(authority.file.read_bytes())
    async with (
        secure_broker(server_context(authority.issue("broker"))) as broker,
        AsyncClient(broker.service_url, config(tls_trust_certs_file=str(trusted))) as client,
    ):
        producer = await client.create_producer(TOPIC)
        trusted.unlink()
        broker.cut()
        await soon(lambda: "trusted.pem: No such file" in caplog.text, "a warning")
        trusted.write_bytes(authority.file.read_bytes())
        await producer.send(b"x")


async def test_what_does_not_speak_tls_is_said(authority: Authority) -> None:
    async with (
        LineServer() as server,
        AsyncClient(f"pulsar+ssl://127.0.0.1:{server.port}", config(authority)) as client,
    ):
        with raised_soon(TlsFailed, r"does not speak TLS .*: use its TLS port"):
            await client.create_producer(TOPIC)


@pytest.mark.parametrize("is_tls", [True, False])
async def test_a_broker_without_the_kind_of_port_is_said(authority: Authority, is_tls: bool) -> None:
    def located(command: BaseCommand, _: bytes) -> list[bytes]:
        answer = CommandLookupTopicResponse(
            response=CommandLookupTopicResponse.Connect, request_id=command.lookupTopic.request_id
        )
        setattr(answer, "brokerServiceUrl" if is_tls else "brokerServiceUrlTls", "pulsar://127.0.0.1:1")
        return [encode_frame(BaseCommand(type=BaseCommand.LOOKUP_RESPONSE, lookupTopicResponse=answer))]

    context = server_context(authority.issue("broker")) if is_tls else None
    async with secure_broker(context) as broker:
        broker.answers[BaseCommand.LOOKUP] = located
        given = ClientConfig(operation_timeout_s=1.0, tls_trust_certs_file=str(authority.file) if is_tls else "")
        async with AsyncClient(broker.service_url, given) as client:
            said = "without TLS" if not is_tls else "with TLS"
            with pytest.raises(ProtocolError, match=f"no broker address {said}: try a service URL with pulsar"):
                await client.create_producer(TOPIC)


def test_settings_of_tls_without_tls_are_refused_by_the_client(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="tls_trust_certs_file requires TLS, which pulsar://localhost does"):
        Client("pulsar://localhost", ClientConfig(tls_trust_certs_file=str(tmp_path)))


def test_the_rest_interface_beside_tls_is_at_the_usual_port() -> None:
    assert derive_admin_url("pulsar+ssl://host") == "https://host:8443"
    assert derive_admin_url("pulsar://[::1]:6650") == "http://[::1]:8080"
    with pytest.raises(InvalidConfig, match=r"whose port is not 6651.*admin_url='https://host:8443'"):
        derive_admin_url("pulsar+ssl://host:1")


# -- credentials ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "method", "data"),
    [
        ({}, "none", b""),
        ({"auth_plugin": "token", "auth_params": "token:a.b.c"}, "token", b"a.b.c"),
        ({"authentication": AuthenticationToken(lambda: "d.e.f")}, "token", b"d.e.f"),
        ({"authentication": AuthenticationBasic("ada", "word")}, "basic", b"ada:word"),
    ],
)
async def test_connect_shows_the_credentials(settings: dict[str, Any], method: str, data: bytes) -> None:
    async with ScriptedBroker() as broker, AsyncClient(broker.service_url, config(**settings)) as client:
        await client.create_producer(TOPIC)
        (command,) = broker.commands(BaseCommand.CONNECT)
    connect = command.connect
    assert (connect.auth_method_name, connect.auth_data) == (method, data)
    assert connect.feature_flags.supports_auth_refresh == (method != "none")


def refuse(code: Any, message: str) -> Callable[[BaseCommand, bytes], list[bytes]]:
    return lambda _c, _p: [refused(NO_REQUEST, code, message)]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"authentication": AuthenticationToken("old")},
         r"127.0.0.1:\d+ refused the connection: Failed to authenticate \(method token\): the credentials may have"),
        ({}, "; it requires authentication: pass credentials to the client, for example AuthenticationToken"),
    ],
)  # fmt: skip
async def test_a_refused_client_is_told_at_once(settings: dict[str, Any], said: str) -> None:
    async with ScriptedBroker() as broker, AsyncClient(broker.service_url, config(**settings)) as client:
        broker.answers[BaseCommand.CONNECT] = refuse(ServerError.AuthenticationError, "Failed to authenticate")
        with raised_soon(AuthenticationError, said):
            await client.create_producer(TOPIC)
        assert broker.connections == 1


async def test_credentials_that_cannot_be_read_are_said_at_once(tmp_path: Path) -> None:
    given = config(auth_plugin="token", auth_params=f"file://{tmp_path}/token")
    async with ScriptedBroker() as broker, AsyncClient(broker.service_url, given) as client:
        with raised_soon(CredentialsUnavailable, "cannot read token file .*/token: No such file"):
            await client.create_producer(TOPIC)
        assert broker.connections == 0


async def test_a_token_that_expired_while_away_is_said_and_asked_for_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "token"
    file.write_text("old")

    def judge(command: BaseCommand, _: bytes) -> list[bytes]:
        if command.connect.auth_data == b"old":
            return [refused(NO_REQUEST, ServerError.AuthenticationError, "Failed to authenticate")]
        return [connected()]

    given = config(auth_plugin="token", auth_params=f"file://{file}")
    async with ScriptedBroker() as broker, AsyncClient(broker.service_url, given) as client:
        producer = await client.create_producer(TOPIC, ProducerConfig(send_timeout_ms=300))
        broker.answers[BaseCommand.CONNECT] = judge
        broker.cut()
        with pytest.raises(OperationTimeout, match=r"last error: .* Failed to authenticate \(method token\)"):
            await producer.send(b"x")
        assert "reattaching failed (attempt 1): 127.0.0.1" in caplog.text
        assert "Failed to authenticate (method token)" in caplog.text
        file.write_text("new")
        await soon(lambda: producer.is_connected, "a producer that is connected")
        await producer.send(b"y")


def challenge() -> bytes:
    asked = CommandAuthChallenge(
        challenge=AuthData(auth_method_name="token", auth_data=b"PulsarAuthRefresh"), protocol_version=21
    )
    return encode_frame(BaseCommand(type=BaseCommand.AUTH_CHALLENGE, authChallenge=asked))


async def test_a_challenge_is_answered_with_the_token_as_it_is_now(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    given = config(auth_plugin="token", auth_params=f"file://{file}")
    async with ScriptedBroker() as broker, AsyncClient(broker.service_url, given) as client:
        producer = await client.create_producer(TOPIC)
        file.write_text("new")
        broker.say(challenge())
        await soon(lambda: broker.commands(BaseCommand.AUTH_RESPONSE), "an answer")
        (command,) = broker.commands(BaseCommand.AUTH_RESPONSE)
        answer = command.authResponse
        assert (answer.response.auth_method_name, answer.response.auth_data) == ("token", b"new")
        assert answer.client_version == broker.commands(BaseCommand.CONNECT)[0].connect.client_version
        await producer.send(b"x")
        assert broker.connections == 1


async def test_a_challenge_without_an_answer_ends_the_connection_and_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    file = tmp_path / "token"
    file.write_text("old")
    given = config(auth_plugin="token", auth_params=f"file://{file}")
    async with ScriptedBroker() as broker, AsyncClient(broker.service_url, given) as client:
        producer = await client.create_producer(TOPIC)
        file.unlink()
        broker.say(challenge())
        await soon(lambda: "was detached: cannot renew the credentials" in caplog.text, "a reason")
        file.write_text("new")
        await producer.send(b"x")
        assert broker.commands(BaseCommand.CONNECT)[-1].connect.auth_data == b"new"


async def test_a_challenge_to_a_client_without_credentials_is_passed_over() -> None:
    async with ScriptedBroker() as broker, AsyncClient(broker.service_url, config()) as client:
        producer = await client.create_producer(TOPIC)
        broker.say(challenge())
        await producer.send(b"x")
        assert not broker.commands(BaseCommand.AUTH_RESPONSE)


class Slow(Authentication):
    """Gives nothing until it is let."""

    method = "slow"

    def __init__(self) -> None:
        self.may_end = False

    def data(self) -> bytes:
        while not self.may_end:
            time.sleep(0.005)
        return b""

    def headers(self) -> dict[str, str]:
        return {}


async def test_slow_credentials_hold_nothing_up_but_their_connection() -> None:
    slow = Slow()
    introduction = Introduction("v", ClientCredentials(None, slow), False, 0.05)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    async with asyncio.TaskGroup() as group:
        ticking = group.create_task(tick())
        with pytest.raises(OperationTimeout, match=r"Slow\(\) returned no credentials within 0.05 s"):
            await introduction.data()
        ticking.cancel()
        slow.may_end = True
    assert ticks > 10


async def test_a_connection_that_ends_within_tls_is_made_again(authority: Authority) -> None:
    """A broker that restarts behind a proxy ends connections in the middle of the handshake."""
    async with Closer() as closer:
        given = ClientConfig(operation_timeout_s=0.2, backoff_initial_ms=5, tls_trust_certs_file=str(authority.file))
        async with AsyncClient(f"pulsar+ssl://127.0.0.1:{closer.port}", given) as client:
            with pytest.raises(ConnectionLost, match=r"cannot connect to 127.0.0.1:\d+: .* that this is a TLS port"):
                await client.create_producer(TOPIC)
        assert closer.connections > 1


class LineServer(ScriptedBroker):
    """Speaks something else."""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 welcome\r\n")
        await reader.read()


class Closer(ScriptedBroker):
    """Ends what it is sent the first bytes of."""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)


def test_the_blocking_client_goes_through_tls_with_a_token(authority: Authority) -> None:
    async def serve() -> None:
        async with secure_broker(server_context(authority.issue("broker"))) as broker:

            def talk() -> None:
                given = config(authority, authentication=AuthenticationToken("a.b.c"))
                with Client(broker.service_url, given) as client:
                    client.create_producer(TOPIC).send(b"x")

            await asyncio.to_thread(talk)
            assert broker.commands(BaseCommand.CONNECT)[0].connect.auth_data == b"a.b.c"

    asyncio.run(serve())


def test_no_secret_is_shown_by_settings() -> None:
    assert "s3cr3t" not in repr(ClientConfig(auth_plugin="token", auth_params="token:s3cr3t"))
    with pytest.raises(InvalidConfig, match="authentication and auth_plugin are mutually exclusive"):
        Client(
            "pulsar://localhost",
            ClientConfig(auth_plugin="token", auth_params="t", authentication=AuthenticationToken("t")),
        )
