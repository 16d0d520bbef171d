"""The official Python client with each kind of credentials: let in, refused, ended, other audience, wrong host."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pulsar
import pytest
from magnetar.broker.service import BrokerService
from magnetar.broker.session.connection import Connection
from magnetar.security.authentication.settings import ServerSecurity
from magnetar.security.server_tls_settings import ServerTls

from ..broker.brokers import running_broker
from ..support.certificates import Authority, Certificate
from ..support.tokens import PROVIDER_BASIC, PROVIDER_TLS, PROVIDER_TOKEN, SECRET, data_url, token

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
HTPASSWD = data_url(b"ann:$apr1$r31.....$HqJZimcKQFAMYayBlzkrA/")
REFUSED_S = 2
"""The client tries again for so long."""


class Site:
    """A broker with every kind of authentication, and what reaches it."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory / "ca")
        self.server = self.authority.issue("server")
        self.log = pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(directory / "client.log"))
        self.broker: BrokerService

    @contextlib.asynccontextmanager
    async def running(self, directory: Path, **settings: Any) -> AsyncIterator[Site]:
        security = ServerSecurity(
            enabled=True, providers=(PROVIDER_TOKEN, PROVIDER_BASIC, PROVIDER_TLS), token_secret_key=data_url(SECRET),
            basic_auth_conf=HTPASSWD, token_audience_claim="aud", token_audience="here", refresh_check_s=0.3,
            **settings,
        )  # fmt: skip
        tls = ServerTls(
            certificate_file=str(self.server.file), key_file=str(self.server.key_file),
            trust_certs_file=str(self.authority.file),
        )  # fmt: skip
        async with running_broker(directory, security=security, broker_tls_port=0, tls=tls) as self.broker:
            yield self

    async def talks(self, *, host: str = "", **options: Any) -> bool:
        """Whether a client sends and receives a message; over TLS where a host is named."""
        return await asyncio.to_thread(self._talks, host, options)

    def _talks(self, host: str, options: dict[str, Any]) -> bool:
        broker = self.broker
        url = f"pulsar+ssl://{host}:{broker.tls_port}" if host else broker.broker_url
        if host:
            options = {"tls_trust_certs_file_path": str(self.authority.file), "tls_validate_hostname": True} | options
        client = pulsar.Client(url, logger=self.log, operation_timeout_seconds=REFUSED_S, **options)
        try:
            consumer = client.subscribe("persistent://public/wire/t", "s")
            client.create_producer("persistent://public/wire/t").send(b"hello")
            message = consumer.receive(20_000)
            consumer.acknowledge(message)
            return bool(message.data() == b"hello")
        except (pulsar.Timeout, pulsar.AuthenticationError, pulsar.ConnectError, pulsar.AuthorizationError):
            return False
        finally:
            client.close()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def good(**claims: Any) -> pulsar.AuthenticationToken:
    return pulsar.AuthenticationToken(token("ann", **({"aud": "here"} | claims)))


def by_certificate(certificate: Certificate) -> pulsar.AuthenticationTLS:
    return pulsar.AuthenticationTLS(str(certificate.file), str(certificate.key_file))


async def test_tokens(site: Site, tmp_path: Path) -> None:
    async with site.running(tmp_path):
        assert await site.talks(authentication=good())
        assert await site.talks(authentication=pulsar.AuthenticationToken(lambda: token("ann", aud="here")))
        assert not await site.talks()
        assert not await site.talks(authentication=good(exp=1))
        assert not await site.talks(authentication=good(aud="elsewhere"))
        assert not await site.talks(authentication=pulsar.AuthenticationToken(token("ann", key=b"x" * 32, aud="here")))


async def test_passwords(site: Site, tmp_path: Path) -> None:
    async with site.running(tmp_path):
        assert await site.talks(authentication=pulsar.AuthenticationBasic("ann", "myPassword"))
        assert not await site.talks(authentication=pulsar.AuthenticationBasic("ann", "wrong"))


async def test_certificates(site: Site, tmp_path: Path) -> None:
    foreign = Authority(tmp_path / "foreign").issue("ann")
    async with site.running(tmp_path):
        assert await site.talks(host="localhost", authentication=by_certificate(site.authority.issue("ann")))
        assert await site.talks(host="127.0.0.1", authentication=good())
        expired = site.authority.issue("ann", file_name="expired", is_expired=True)
        assert not await site.talks(host="localhost", authentication=by_certificate(expired))
        assert not await site.talks(host="localhost", authentication=by_certificate(foreign))
        assert not await site.talks(host="localhost")


async def test_a_client_does_not_talk_to_a_server_of_another_name_or_authority(site: Site, tmp_path: Path) -> None:
    site.server = site.authority.issue("server", ["elsewhere.example"])
    async with site.running(tmp_path):
        assert not await site.talks(host="localhost", authentication=good())
        assert await site.talks(host="localhost", authentication=good(), tls_validate_hostname=False)
        other = str(Authority(tmp_path / "foreign").file)
        assert not await site.talks(
            host="localhost", authentication=good(), tls_validate_hostname=False, tls_trust_certs_file_path=other
        )


async def test_a_connection_goes_on_with_new_tokens_when_the_old_ones_end(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str] = []

    def new_token() -> str:
        given.append(token("ann", aud="here", exp=time.time() + 0.5))
        return given[-1]

    def talk_on(url: str) -> int:
        client = pulsar.Client(url, logger=site.log, authentication=pulsar.AuthenticationToken(new_token))
        try:
            producer = client.create_producer("persistent://public/wire/t")
            deadline = time.monotonic() + 60
            sent = 0
            while len(given) < 4 and time.monotonic() < deadline:
                producer.send(b"x")
                sent += 1
            return sent
        finally:
            client.close()

    async with site.running(tmp_path) as running:
        came: list[Connection] = []
        was_made = running.broker.connection_made

        def note(connection: Connection) -> None:
            came.append(connection)
            was_made(connection)

        monkeypatch.setattr(running.broker, "connection_made", note)
        assert await asyncio.to_thread(talk_on, running.broker.broker_url) > 10
        assert len(given) >= 4
        assert len(came) == 1, "the connection was given up instead"


@contextlib.contextmanager
def issuer() -> Iterator[str]:
    """A server that gives tokens to the client `id` with the secret `secret`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer({"token_endpoint": f"{url}/token"})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            audience = "here" if "audience=here" in body else "elsewhere"
            self._answer({"access_token": token("ann", aud=audience), "token_type": "Bearer", "expires_in": 3600})

        def _answer(self, value: dict[str, Any]) -> None:
            content = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield url
        finally:
            server.shutdown()
            thread.join()


async def test_tokens_of_an_oauth2_server(site: Site, tmp_path: Path) -> None:
    key_file = tmp_path / "credentials.json"
    key_file.write_text(json.dumps({"type": "client_credentials", "client_id": "id", "client_secret": "secret"}))
    with issuer() as url:

        def oauth2(audience: str) -> pulsar.AuthenticationOauth2:
            params = {
                "type": "client_credentials", "issuer_url": url, "private_key": str(key_file), "audience": audience
            }  # fmt: skip
            return pulsar.AuthenticationOauth2(json.dumps(params))

        async with site.running(tmp_path):
            assert await site.talks(authentication=oauth2("here"))
            assert not await site.talks(authentication=oauth2("elsewhere"))
