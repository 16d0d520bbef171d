"""OAuth2 as the client asks for it: a real HTTP server that gives out tokens, over TLS and on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from magnetar.errors import AuthenticationError, ConnectionLost
from magnetar.security.credentials.authentication_oauth2 import DISCOVERY, AuthenticationOAuth2

from tests.support.certificates import Authority, server_context

SECRET = "s3cr3t-of-nobody"


class Issuer(ThreadingHTTPServer):
    """Gives a token to whoever has the secret."""

    def __init__(self, context: Any) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http{'' if context is None else 's'}://127.0.0.1:{self.server_port}"
        self.forms: list[dict[str, list[str]]] = []
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True)

    def handle_error(self, *_: object) -> None:
        """Say nothing of clients that refuse the certificate."""


class _Handler(BaseHTTPRequestHandler):
    server: Issuer

    def do_GET(self) -> None:
        self._say(200 if self.path == DISCOVERY else 404, {"token_endpoint": f"{self.server.url}/token?v=1"})

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.server.forms.append(form)
        if form["client_secret"] != [SECRET] or self.path != "/token?v=1":
            self._say(401, {"error": "invalid_client"})
        else:
            self._say(200, {"access_token": "a.b.c", "expires_in": 3600})

    def _say(self, status: int, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def issuing(context: Any = None) -> Iterator[Issuer]:
    with Issuer(context) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def plugin(issuer: Issuer, **params: str) -> AuthenticationOAuth2:
    given = {"issuerUrl": issuer.url, "clientId": "me", "clientSecret": SECRET, "audience": "urn:pulsar", **params}
    return AuthenticationOAuth2(json.dumps(given))


def test_a_token_is_fetched_once_from_a_server_of_this_machine() -> None:
    with issuing() as issuer:
        one = plugin(issuer)
        assert (one.data(), one.headers()["Authorization"]) == (b"a.b.c", "Bearer a.b.c")
        assert [form["audience"] for form in issuer.forms] == [["urn:pulsar"]]
        with pytest.raises(AuthenticationError, match=r"rejected the client: invalid_client$"):
            plugin(issuer, clientSecret="wrong").data()


def test_the_authorization_server_must_be_trusted(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with issuing(server_context(authority.issue("issuer"))) as issuer:
        assert plugin(issuer, trustCertsFilePath=str(authority.file)).data() == b"a.b.c"
        with pytest.raises(ConnectionLost, match=r"authorization server https://127.0.0.1:\d+ did not respond: .*"):
            plugin(issuer).data()
        assert len(issuer.forms) == 1


def test_an_authorization_server_that_is_away_is_said() -> None:
    with issuing() as issuer:
        away = plugin(issuer)
    with pytest.raises(ConnectionLost, match=r"did not respond: .*refused"):
        away.data()
