"""OAuth2 client credentials: an authorization server issues a token for a client id and secret.

The token is cached until shortly before it expires. The secret is reread for each fetch.

Source: RFC 6749, section 4.4; Pulsar's client, OAuth2.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any
from urllib.parse import urlencode, urlsplit

from ...errors import AuthenticationError, ConnectionLost, CredentialsUnavailable, InvalidConfig
from ...wire.printable import one_line
from .authentication import METHOD_HEADER, Authentication
from .authentication_token import checked_token
from .secret_file import read_secret_at

DISCOVERY = "/.well-known/openid-configuration"
TIMEOUT_S = 30.0
ANSWER_BYTES_MAX = 1024 * 1024
EARLY_S_MAX = 10.0
"""How long before expiry a token is renewed, in seconds; a tenth of its lifetime if that is shorter."""
_REASON_CHARACTERS_MAX = 300
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_NAMES = {
    "issuerUrl": "issuer_url",
    "privateKey": "private_key",
    "audience": "audience",
    "scope": "scope",
    "type": "type",
    "clientId": "client_id",
    "clientSecret": "client_secret",
    "trustCertsFilePath": "trust_certs_file_path",
}
"""Parameter names of the Java client and the corresponding names of the C++ client."""
_TYPE = "client_credentials"

Fetch = Callable[[str, bytes | None], tuple[int, bytes]]
"""Sends a GET, or a POST with a form, to a URL; returns status and content of the response. Blocking."""


class AuthenticationOAuth2(Authentication):
    """Authenticates with a token issued by an authorization server."""

    method = "token"

    def __init__(
        self,
        auth_params_string: str | Mapping[str, str],
        *,
        fetch: Fetch | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create the credentials; the token is fetched later.

        Args:
            auth_params_string: JSON, or a mapping, with ``issuerUrl``, ``privateKey`` (``file:///…``, a path, or
                ``data:application/json;base64,…`` of JSON with ``client_id`` and ``client_secret``), and, if the server
                requires them, ``audience`` and ``scope``; ``clientId`` and ``clientSecret`` may replace ``privateKey``;
                ``trustCertsFilePath``: certificates (PEM) of the trusted authorities, instead of the system's.
            fetch: sends requests to the authorization server; by default, the standard library is used.
            clock: returns monotonic seconds.

        Raises:
            InvalidConfig: a parameter is missing or unknown, or a URL is neither https nor on this machine.
        """
        given = _parse(auth_params_string)
        self._issuer = checked_url(given["issuer_url"], "issuerUrl").rstrip("/")
        self._given = given
        self._fetch = fetch or Fetcher(given.get("trust_certs_file_path", ""))
        self._clock = clock
        self._lock = Lock()
        self._token = ""
        self._fresh_until = clock()

    def data(self) -> bytes:
        """Return the cached token, fetching a new one if necessary. Blocking.

        Raises:
            AuthenticationError: the authorization server rejected the client.
            CredentialsUnavailable: the secret cannot be read, or the server's response is invalid.
            ConnectionLost: the authorization server does not respond.
        """
        return self._fresh_token().encode()

    def headers(self) -> dict[str, str]:
        """Return the ``Bearer`` authorization header; raises the same errors as `data`."""
        return {"Authorization": f"Bearer {self._fresh_token()}", METHOD_HEADER: self.method}

    def __repr__(self) -> str:
        return f"AuthenticationOAuth2({self._issuer!r})"

    def _fresh_token(self) -> str:
        with self._lock:
            if not self._token or self._clock() >= self._fresh_until:
                self._renew()
            return self._token

    def _renew(self) -> None:
        began = self._clock()
        endpoint = self._ask(f"{self._issuer}{DISCOVERY}", None).get("token_endpoint")
        if not isinstance(endpoint, str):
            raise CredentialsUnavailable(f"{self._issuer}{DISCOVERY} does not contain a token_endpoint")
        answer = self._ask(checked_url(endpoint, "token_endpoint"), self._form())
        token, life_s = answer.get("access_token"), answer.get("expires_in", 0)
        if not isinstance(token, str):
            raise CredentialsUnavailable(f"response of {self._issuer} does not contain an access_token")
        self._token = checked_token(token)
        try:
            life_s = float(life_s)
        except (TypeError, ValueError):
            life_s = 0.0  # not cached
        self._fresh_until = began + life_s - min(EARLY_S_MAX, life_s / 10)

    def _form(self) -> bytes:
        given = self._given
        if "client_id" in given:
            client_id, secret = given["client_id"], given["client_secret"]
        else:
            client_id, secret = _read_key(given["private_key"])
        form = {"grant_type": _TYPE, "client_id": client_id, "client_secret": secret}
        form |= {name: given[name] for name in ("audience", "scope") if given.get(name)}
        return urlencode(form).encode()

    def _ask(self, url: str, form: bytes | None) -> dict[str, Any]:
        status, content = self._fetch(url, form)
        try:
            answer = json.loads(content)
        except ValueError:
            answer = None
        if status in (400, 401) and form is not None:
            said = answer if isinstance(answer, dict) else {}
            reason = f"{said.get('error', status)} {said.get('error_description') or ''}"
            raise AuthenticationError(
                f"{self._issuer} rejected the client: {one_line(reason)[:_REASON_CHARACTERS_MAX]}"
            )
        if status != 200:
            raise ConnectionLost(f"{one_line(url)[:_REASON_CHARACTERS_MAX]} returned status {status} instead of 200")
        if not isinstance(answer, dict):
            raise CredentialsUnavailable(f"response of {one_line(url)[:_REASON_CHARACTERS_MAX]} is not a JSON object")
        return answer


class Fetcher:
    """Sends requests to an authorization server with the standard library, without a proxy or redirects."""

    def __init__(self, trust_certs_file: str = "") -> None:
        """Create a fetcher.

        Args:
            trust_certs_file: certificates (PEM) of the trusted authorities; empty for the system's.
        """
        self._trust_certs_file = trust_certs_file

    def __call__(self, url: str, form: bytes | None) -> tuple[int, bytes]:
        """Return status and content of the response. Blocking.

        Raises:
            ConnectionLost: no response was received.
        """
        import ssl
        from contextlib import closing
        from http.client import HTTPConnection, HTTPException, HTTPSConnection

        parsed = urlsplit(url)
        host, where = parsed.hostname or "", (parsed.path or "/") + (f"?{parsed.query}" if parsed.query else "")
        connection: HTTPConnection
        try:
            if parsed.scheme == "https":
                context = ssl.create_default_context(cafile=self._trust_certs_file or None)
                connection = HTTPSConnection(host, parsed.port, timeout=TIMEOUT_S, context=context)
            else:
                connection = HTTPConnection(host, parsed.port, timeout=TIMEOUT_S)
            headers = {"Accept": "application/json"}
            if form is not None:
                headers["Content-Type"] = "application/x-www-form-urlencoded"
            with closing(connection):
                connection.request("GET" if form is None else "POST", where, form, headers)
                response = connection.getresponse()
                return response.status, response.read(ANSWER_BYTES_MAX)
        except (OSError, HTTPException, ValueError) as error:
            raise ConnectionLost(
                f"authorization server {parsed.scheme}://{parsed.netloc} did not respond: {one_line(str(error))}"
            ) from error


def checked_url(url: str, what: str) -> str:
    """Return a URL if a secret may be sent to it.

    Raises:
        InvalidConfig: the URL contains a user, or is neither https nor http on this machine.
    """
    parsed = urlsplit(url)
    if "@" in parsed.netloc:
        raise InvalidConfig(f"{what} contains a user name: remove it from the URL")
    is_here = parsed.scheme == "http" and parsed.hostname in _LOOPBACK
    if not parsed.hostname or not (parsed.scheme == "https" or is_here):
        shown = one_line(url)[:_REASON_CHARACTERS_MAX]
        raise InvalidConfig(f"{what} {shown!r} must begin with https://, because a secret is sent to it")
    return url


def _parse(params: str | Mapping[str, str]) -> dict[str, str]:
    """Return the parameters under the C++ client's names; errors do not contain them."""
    content: Any = params
    if isinstance(params, str):
        try:
            content = json.loads(params)
        except ValueError:
            content = None
    example = '{"issuerUrl": "https://…", "privateKey": "file:///…", "audience": "…"}'
    if not isinstance(content, Mapping):
        raise InvalidConfig(f"invalid OAuth2 parameters: expected a JSON object: {example}")
    given: dict[str, str] = {}
    for name, value in content.items():
        ours = _NAMES.get(str(name), str(name))
        if ours not in _NAMES.values():
            raise InvalidConfig(f"unknown OAuth2 parameter {str(name)[:80]!r}: expected one of {', '.join(_NAMES)}")
        if not isinstance(value, str):
            raise InvalidConfig(f"invalid OAuth2 parameter {name}: expected a string, got {type(value).__name__}")
        given[ours] = value
    if given.get("type", _TYPE) != _TYPE:
        raise InvalidConfig(f"unsupported OAuth2 type {given['type'][:80]!r}: expected {_TYPE}")
    if not given.get("issuer_url"):
        raise InvalidConfig(f"missing OAuth2 parameter issuerUrl: expected {example}")
    has_secret = bool(given.get("client_id")) and bool(given.get("client_secret"))
    if has_secret == bool(given.get("private_key")):
        raise InvalidConfig("OAuth2 requires either privateKey, or clientId and clientSecret")
    return given


def _read_key(url: str) -> tuple[str, str]:
    """Return client id and secret from the file or data URL in ``privateKey``. Blocking."""
    what = "OAuth2 privateKey"
    try:
        content: Any = json.loads(read_secret_at(url, what))
    except ValueError:
        content = None
    found = content if isinstance(content, dict) else {}
    client_id, secret = found.get("client_id"), found.get("client_secret")
    if not isinstance(client_id, str) or not isinstance(secret, str):
        raise CredentialsUnavailable(f"{what} does not contain a JSON object with client_id and client_secret")
    return client_id, secret
