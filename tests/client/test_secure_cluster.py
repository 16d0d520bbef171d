"""Our client, blocking and asyncio, REST and command line, on our broker and an Apache Pulsar that ask who they are."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from magnetar.cli.main import main
from magnetar.client import (
    AsyncClient,
    AuthenticationBasic,
    AuthenticationError,
    AuthenticationTls,
    AuthenticationToken,
    AuthorizationError,
    Client,
    ClientConfig,
    ConsumerConfig,
    ForeignProtocol,
    InvalidConfig,
    ProducerConfig,
    RequestRefused,
    TlsFailed,
)
from magnetar.security.client_credentials import ClientCredentials
from magnetar.security.credentials.client_security import ClientSecurity
from magnetar.web.client import request
from magnetar.wire.pulsar_api_pb2 import BaseCommand

from tests.client.proxy import Proxy
from tests.support.certificates import Authority
from tests.support.eventually import eventually
from tests.support.pulsar import BROKERS
from tests.support.secure_cluster import NAMESPACE, PASSWORD, USER, SecureCluster, running_secure_cluster
from tests.support.tokens import token

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
UNRETRIED_S = 8.0


@pytest.fixture(scope="module", params=BROKERS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    with running_secure_cluster(request.param, tmp_path_factory.mktemp("secure")) as it:
        if it is None:
            pytest.skip("needs an Apache Pulsar of its own; give a starter (make test-pulsar PULSAR=…)")
        yield it


@contextlib.contextmanager
def raised_soon(kind: type[Exception], match: str) -> Iterator[None]:
    """What is in here fails at once: trying again would take as long as an operation may."""
    began = time.monotonic()
    with pytest.raises(kind, match=match) as failed:
        yield
    assert time.monotonic() - began < UNRETRIED_S
    assert "\n" not in str(failed.value)


def credentials_of(cluster: SecureCluster, method: str) -> dict[str, Any]:
    """Settings of a client that shows who it is."""
    if method == "token":
        return {"authentication": AuthenticationToken(cluster.token("consumer"))}
    if method == "basic":
        return {"authentication": AuthenticationBasic(USER, PASSWORD)}
    mine = cluster.certificate("consumer")
    return {"authentication": AuthenticationTls(str(mine.file), str(mine.key_file))}


def config(**settings: Any) -> ClientConfig:
    return ClientConfig(operation_timeout_s=30, backoff_initial_ms=20, backoff_max_ms=200, **settings)


@pytest.mark.parametrize("is_tls", [True, False], ids=["tls", "plain"])
@pytest.mark.parametrize("method", ["token", "basic", "tls"])
async def test_messages_go_round_with_each_method(cluster: SecureCluster, method: str, is_tls: bool) -> None:
    if method == "tls" and not is_tls:
        with pytest.raises(InvalidConfig, match="authentication method tls requires TLS"):
            AsyncClient(cluster.service_url, config(**credentials_of(cluster, method)))
        return
    topic, trust = cluster.topic(method), {"tls_trust_certs_file": cluster.ca} if is_tls else {}
    given = config(**credentials_of(cluster, method), **trust)
    async with AsyncClient(cluster.tls_url if is_tls else cluster.service_url, given) as client:
        consumer = await client.subscribe(topic, "s", ConsumerConfig(ack_receipts=True))
        producer = await client.create_producer(topic)
        sent = [f"{number}".encode() * 500 for number in range(2000)]
        await asyncio.gather(*[producer.send_nowait(payload) for payload in sent[:1000]])
        await asyncio.gather(*[producer.send_nowait(payload) for payload in sent[1000:]])
        assert [bytes((await consumer.receive(30)).data) for _ in sent] == sent
        assert await client.partitions(topic) == [topic]


@pytest.mark.parametrize("claims", ["none", "expired", "wrong key", "wrong password", "no certificate"])
async def test_who_is_not_known_is_told_at_once(cluster: SecureCluster, claims: str) -> None:
    known: dict[str, dict[str, Any]] = {
        "none": {},
        "expired": {"authentication": AuthenticationToken(cluster.token("consumer", -60))},
        "wrong key": {"authentication": AuthenticationToken(token("superuser", b"x" * 32))},
        "wrong password": {"authentication": AuthenticationBasic(USER, "wrong")},
        "no certificate": {},
    }
    settings = known[claims]
    async with AsyncClient(cluster.tls_url, config(tls_trust_certs_file=cluster.ca, **settings)) as client:
        with raised_soon(AuthenticationError, "refused the connection: Failed to authenticate"):
            await client.create_producer(cluster.topic("t"))
        with raised_soon(AuthenticationError, "refused the connection: Failed to authenticate"):
            await client.subscribe(cluster.topic("t"), "s")


async def test_who_may_not_is_told_at_once(cluster: SecureCluster) -> None:
    given = config(authentication=AuthenticationToken(cluster.token("stranger")))
    async with AsyncClient(cluster.service_url, given) as client:
        with raised_soon(AuthorizationError, "not authorized"):
            await client.create_producer(cluster.topic("t"))
        with raised_soon(AuthorizationError, "not authorized"):
            await client.subscribe(cluster.topic("t"), "s")


async def test_the_certificate_must_be_trusted_and_name_the_host(cluster: SecureCluster, tmp_path: Path) -> None:
    other = Authority(tmp_path)
    shown = credentials_of(cluster, "token")
    async with AsyncClient(cluster.tls_url, config(tls_trust_certs_file=str(other.file), **shown)) as client:
        with raised_soon(TlsFailed, "rejected the certificate of .*: set tls_trust_certs_file to the CA"):
            await client.create_producer(cluster.topic("t"))
    named = cluster.tls_url.replace("127.0.0.1", "localhost")
    async with AsyncClient(named, config(tls_trust_certs_file=cluster.ca, **shown)) as client:
        with raised_soon(TlsFailed, "Hostname mismatch.*: connect with a host name in the certificate"):
            await client.create_producer(cluster.topic("t"))
    lenient = config(tls_trust_certs_file=cluster.ca, tls_hostname_verification=False, **shown)
    async with AsyncClient(named, lenient) as client:
        await client.create_producer(cluster.topic("t"))


async def test_a_port_without_tls_is_said(cluster: SecureCluster) -> None:
    url = cluster.service_url.replace("pulsar://", "pulsar+ssl://")
    async with AsyncClient(url, config(tls_trust_certs_file=cluster.ca)) as client:
        with raised_soon(TlsFailed, "does not speak TLS: use pulsar://"):
            await client.create_producer(cluster.topic("t"))


async def test_a_port_with_tls_is_said_to_a_client_without(cluster: SecureCluster) -> None:
    async with AsyncClient(cluster.tls_url.replace("pulsar+ssl://", "pulsar://"), config()) as client:
        with raised_soon(ForeignProtocol, r"is a TLS port: use pulsar\+ssl://"):
            await client.create_producer(cluster.topic("t"))


async def test_a_token_is_renewed_while_connected(cluster: SecureCluster, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(cluster.token("consumer", 3))
    given = config(auth_plugin="token", auth_params=f"file://{file}")
    topic = cluster.topic("renewed")
    async with Proxy(cluster.service_url) as proxy, AsyncClient(proxy.service_url, given) as client:
        consumer = await client.subscribe(topic, "s")
        producer = await client.create_producer(topic, ProducerConfig(batching=False))
        connections = proxy.connections
        file.write_text(cluster.token("consumer", 600))

        async def is_asked() -> bool:
            return proxy.count(BaseCommand.AUTH_RESPONSE) >= 1

        await eventually(is_asked, "an answer to a challenge")
        began = time.monotonic()
        while time.monotonic() - began < 4:  # two checks of the broker more
            await producer.send(b"x")
            assert (await consumer.receive(10)).data == b"x"
            await asyncio.sleep(0.2)
        assert proxy.connections == connections
        answer = next(one for one in proxy.sent if one.type == BaseCommand.AUTH_RESPONSE)
        assert answer.authResponse.response.auth_data.decode() == file.read_text()


async def test_a_token_that_expires_is_said_until_it_is_renewed(
    cluster: SecureCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "token"
    file.write_text(cluster.token("consumer", 3))
    given = config(auth_plugin="token", auth_params=f"file://{file}")
    async with AsyncClient(cluster.service_url, given) as client:
        producer = await client.create_producer(cluster.topic("expired"), ProducerConfig(send_timeout_ms=0))

        async def is_said() -> bool:
            return "Failed to authenticate (method token): the credentials may have expired" in caplog.text

        await eventually(is_said, "a reason in the log")
        receipt = producer.send_nowait(b"x")
        file.write_text(cluster.token("consumer", 600))
        await asyncio.wait_for(receipt, 30)


def test_the_blocking_client_and_its_rest_interface(cluster: SecureCluster) -> None:
    given = config(tls_trust_certs_file=cluster.ca, authentication=AuthenticationToken(cluster.token("consumer")))
    topic = cluster.topic("blocking")
    with Client(cluster.tls_url, given, admin_url=cluster.web_tls_url) as client:
        consumer = client.subscribe(topic, "s")
        client.create_producer(topic).send(b"x")
        assert consumer.receive(30).data == b"x"
        with pytest.raises(RequestRefused) as refused:  # without a functions worker, and without the right
            client.functions.list(tenant="sec", namespace="ns")
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("method", ["token", "basic", "tls"])
def test_rest_calls_show_each_method(cluster: SecureCluster, method: str) -> None:
    given = credentials_of(cluster, method)["authentication"]
    credentials = ClientCredentials(ClientSecurity(tls_trust_certs_file=cluster.ca), given)
    url = f"{cluster.web_tls_url}/admin/v2/namespaces/{NAMESPACE}/topics"
    answer = request("GET", url, timeout_s=20, credentials=credentials)
    assert (answer.status, type(answer.json())) == (200, list)
    nobody = ClientCredentials(ClientSecurity(tls_trust_certs_file=cluster.ca))
    assert request("GET", url, timeout_s=20, credentials=nobody).status == 401


def test_commands_show_what_the_client_file_says(
    cluster: SecureCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in os.environ if name.startswith("MAGNETAR_")]:
        monkeypatch.delenv(name)
    file = tmp_path / "client.conf"
    lines = {
        "webServiceUrl": cluster.web_tls_url, "brokerServiceUrl": cluster.tls_url,
        "authPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "authParams": f"token:{cluster.token('consumer')}", "tlsTrustCertsFilePath": cluster.ca,
        "tlsEnableHostnameVerification": "true", "useKeyStoreTls": "false",
    }  # fmt: skip
    file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    monkeypatch.setenv("MAGNETAR_CLIENT_CONF", str(file))
    topic = cluster.topic("cli")
    assert main(["produce", topic, "-m", "hello"]) == 0, capsys.readouterr().err
    assert main(["consume", topic, "-s", "s", "-p", "Earliest", "-n", "1"]) == 0
    assert "hello" in capsys.readouterr().out
    assert main(["-o", "json", "topics", "list", NAMESPACE]) == 0
    assert topic in json.loads(capsys.readouterr().out)
    assert main(["tenants", "list"]) == 1
    assert "HTTP 401" in capsys.readouterr().err
    assert main(["tenants", "list", "--auth-plugin", "token", "--auth-params", cluster.token("superuser")]) == 0
    assert "sec" in capsys.readouterr().out
    monkeypatch.setenv("MAGNETAR_AUTH_PARAMS", cluster.token("consumer", -5))
    for command in (["topics", "list", NAMESPACE], ["produce", topic, "-m", "x"]):
        assert main(command) == 1
        assert "may have expired" in capsys.readouterr().err
