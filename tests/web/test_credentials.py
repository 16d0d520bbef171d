"""Both REST clients with credentials and TLS: what is shown to whom, and which servers are believed."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from magnetar.errors import CredentialsUnavailable
from magnetar.security.client_credentials import ClientCredentials
from magnetar.security.credentials.authentication_token import AuthenticationToken
from magnetar.security.credentials.client_security import ClientSecurity
from magnetar.web import async_client, client
from magnetar.web.client import Answer, NoAnswer, NoTls

from tests.support.certificates import Authority, server_context

Ask = Callable[[str, ClientCredentials | None], Answer]
TOKEN = "a.b.c"
SHOWN = f"Bearer {TOKEN}"


class Server(ThreadingHTTPServer):
    """Answers, or redirects to where it is told; remembers the credentials."""

    location = ""

    def __init__(self, context: Any) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.scheme = "http" if context is None else "https"
        self.shown: list[str | None] = []
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_port}/x"

    def handle_error(self, *_: object) -> None:
        """Say nothing of clients that refuse the certificate."""


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.shown.append(self.headers.get("Authorization"))
        self.send_response(307 if self.server.location else 200)
        if self.server.location:
            self.send_header("Location", self.server.location)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def serving(context: Any = None) -> Iterator[Server]:
    with Server(context) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(params=["blocking", "asyncio"])
def ask(request: pytest.FixtureRequest) -> Ask:
    """Each of the two clients."""

    def blocking(url: str, credentials: ClientCredentials | None) -> Answer:
        return client.request("GET", url, timeout_s=10, credentials=credentials)

    def by_asyncio(url: str, credentials: ClientCredentials | None) -> Answer:
        async def call() -> Answer:
            async with async_client.connections(10, credentials=credentials) as http:
                return await async_client.request(http, "GET", url)

        return asyncio.run(call())

    return blocking if request.param == "blocking" else by_asyncio


def known(authority: Authority | None = None, **settings: Any) -> ClientCredentials:
    """Credentials with a token."""
    trusted: dict[str, Any] = {} if authority is None else {"tls_trust_certs_file": str(authority.file)}
    return ClientCredentials(ClientSecurity(**trusted, **settings), AuthenticationToken(TOKEN))


def test_credentials_are_shown_and_go_on_to_other_servers_of_the_cluster(ask: Ask, authority: Authority) -> None:
    for context in (None, server_context(authority.issue("rest"))):
        with serving(context) as first, serving(context) as second:
            first.location = second.url
            assert ask(first.url, known(authority)).is_success
            assert (first.shown, second.shown) == ([SHOWN], [SHOWN])
            if context is None:
                assert ask(first.url, None).is_success
                assert (first.shown, second.shown) == ([SHOWN, None], [SHOWN, None])


def test_credentials_go_from_http_to_https_and_never_back(ask: Ask, authority: Authority) -> None:
    with serving() as plain, serving(server_context(authority.issue("rest"))) as secure:
        plain.location = secure.url
        assert ask(plain.url, known(authority)).is_success
        assert secure.shown == [SHOWN]
        plain.location, secure.location = "", plain.url
        plain.shown.clear()
        with pytest.raises(NoAnswer, match=r"rejected a redirect to http://127.0.0.1:\d+/x, which has no TLS"):
            ask(secure.url, known(authority))
        assert plain.shown == []


def test_a_server_must_be_trusted_and_have_the_name(ask: Ask, authority: Authority, tmp_path: Path) -> None:
    with serving(server_context(Authority(tmp_path).issue("rest"))) as server:
        for credentials in (known(authority), None):
            with pytest.raises(NoTls, match=r"rejected the certificate of 127.0.0.1:\d+: .*: set "):
                ask(server.url, credentials)
        assert ask(server.url, known(tls_allow_insecure_connection=True)).is_success
        assert server.shown == [SHOWN]
    with serving(server_context(authority.issue("rest", ["elsewhere.example"]))) as server:
        with pytest.raises(NoTls, match=r"mismatch.*: connect with a host name in the certificate"):
            ask(server.url, known(authority))
        assert ask(server.url, known(authority, tls_hostname_verification=False)).is_success


def test_a_server_may_ask_for_a_certificate(ask: Ask, authority: Authority) -> None:
    mine = authority.issue("consumer", [])
    with serving(server_context(authority.issue("rest"), authority, requires_certificate=True)) as server:
        # What the server says of it may be lost where it closes at once.
        with pytest.raises(NoAnswer, match=r"certificate that it trusts|may require a client cert|Broken|reset"):
            ask(server.url, known(authority))
        shown = {"tls_certificate_file": str(mine.file), "tls_key_file": str(mine.key_file)}
        assert ask(server.url, known(authority, **shown)).is_success


def test_credentials_that_cannot_be_had_send_nothing(ask: Ask, tmp_path: Path) -> None:
    with serving() as server:
        with pytest.raises(CredentialsUnavailable, match=r"cannot read .*: No such file"):
            ask(server.url, ClientCredentials(None, AuthenticationToken(f"file://{tmp_path}/token")))
        assert server.shown == []


async def test_a_request_that_brings_its_own_credentials_keeps_them() -> None:
    with serving() as server:
        async with async_client.connections(10, credentials=known()) as http:
            own = {"Authorization": "Bearer d.e.f"}
            await async_client.request(http, "GET", server.url, headers=own)
        assert server.shown == ["Bearer d.e.f"]


async def test_the_pool_of_connections_takes_new_certificates(authority: Authority, tmp_path: Path) -> None:
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(Authority(tmp_path / "other").file.read_bytes())
    with serving(server_context(authority.issue("rest"))) as server:
        credentials = ClientCredentials(ClientSecurity(tls_trust_certs_file=str(trusted)))
        async with async_client.connections(10, credentials=credentials) as http:
            with pytest.raises(NoTls):
                await async_client.request(http, "GET", server.url)
            trusted.write_bytes(authority.file.read_bytes())
            assert (await async_client.request(http, "GET", server.url)).is_success
