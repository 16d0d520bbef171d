"""A secured broker for official clients, ours or an Apache Pulsar with the same settings, and access to it.

It asks for tokens, passwords and certificates on a plain port and on one with TLS, and allows the role `client` to use
topics of the namespace `sec/open` only. Tokens have to be for the audience `here`.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import httpx
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.clients.secured_cases import ENDING_S, LIMIT_S, PLAIN, PLAIN_AT_TLS, TLS, TLS_AT_PLAIN, Case
from tests.support.certificates import Authority, Certificate
from tests.support.tokens import (
    PROVIDER_BASIC,
    PROVIDER_TLS,
    PROVIDER_TOKEN,
    SECRET,
    data_url,
    public_der,
    rsa_key,
    token,
    unsigned,
)  # fmt: skip

PASSWORD = "myPassword"
HTPASSWD = b"client:$apr1$r31.....$HqJZimcKQFAMYayBlzkrA/"
OTHER_SECRET = b"x" * 32
OTHER_AUDIENCE = {"aud": "elsewhere"}
RENEWED_LIFE_S = 3.0
"""How long a token of those lives that a client is asked to renew."""
REFRESH_CHECK_S = 1
RENEWAL_S = 0.3
OTHER_NAME = "elsewhere.example"
"""For which the certificate of the broker with a public key is."""
NAMESPACES = {"open": ["produce", "consume"], "closed": []}


class Site:
    """Keys, certificates and credentials in a directory, and the addresses of the broker.

    Attributes:
        authority: of the broker's certificate and of clients' certificates.
        is_public: the broker knows the public key of tokens only.
        addresses: by kind of port: `plain`, `tls`, `web`, `web_tls`; `host:port` each.
    """

    def __init__(self, directory: Path, *, is_public: bool = False) -> None:
        self.directory = directory
        self.is_public = is_public
        self.authority = Authority(directory / "ca")
        self.foreign = Authority(directory / "foreign", "Test CA of others")
        self.server = self.authority.issue("server", [OTHER_NAME] if is_public else ["localhost", "127.0.0.1"])
        self.pair = rsa_key()
        self.revoked = self.authority.issue("client", file_name="revoked")
        self.crl_file = self.authority.revoke(self.revoked.serial_number)
        self.renewed_file = directory / "renewed-token"
        self.issuer_url = ""
        self._credentials: Mapping[str, tuple[str, dict[str, str]]] = {}
        self.addresses: dict[str, str] = {}

    def super_token(self) -> str:
        """Token of the superuser."""
        return self._signed("superuser")

    def _signed(self, role: str, key: Any = None, **claims: Any) -> str:
        claims = {name: value for name, value in ({"aud": "here"} | claims).items() if value is not None}
        if isinstance(key, rsa.RSAPrivateKey) or (self.is_public and key is None):
            return token(role, key or self.pair, "RS256", **claims)
        return token(role, key or SECRET, **claims)

    def settings(self) -> dict[str, str]:
        """Return the broker's configuration with Pulsar's names."""
        key = {"tokenSecretKey": data_url(SECRET)}
        if self.is_public:
            key = {"tokenPublicKey": data_url(public_der(self.pair))}
        return key | {
            "authenticationEnabled": "true",
            "authorizationEnabled": "true",
            "authenticationProviders": ",".join((PROVIDER_TOKEN, PROVIDER_BASIC, PROVIDER_TLS)),
            "tokenAudienceClaim": "aud",
            "tokenAudience": "here",
            "basicAuthConf": data_url(HTPASSWD),
            "superUserRoles": "superuser",
            "authenticationRefreshCheckSeconds": str(REFRESH_CHECK_S),
            "tlsCertificateFilePath": str(self.server.file),
            "tlsKeyFilePath": str(self.server.key_file),
            "tlsTrustCertsFilePath": str(self.authority.file),
            "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
            "brokerClientAuthenticationParameters": f"token:{self.super_token()}",
        }

    def prepare(self) -> None:
        """Create the tenant, the namespaces and the grants on a running broker."""
        headers = {"authorization": f"Bearer {self.super_token()}"}
        with httpx.Client(base_url=f"http://{self.addresses['web']}/admin/v2", headers=headers, timeout=30) as web:
            tenant = {"adminRoles": ["nobody"], "allowedClusters": ["standalone"]}
            web.put("/tenants/sec", json=tenant).raise_for_status()
            for name, actions in NAMESPACES.items():
                web.put(f"/namespaces/sec/{name}").raise_for_status()
                web.post(f"/namespaces/sec/{name}/permissions/client", json=actions).raise_for_status()

    def credentials(self) -> Mapping[str, tuple[str, dict[str, str]]]:
        """Client credentials: kind and parameters by name; created on the first call, when the issuer is running."""
        self._credentials = self._credentials or self._make_credentials()
        return self._credentials

    def _make_credentials(self) -> Mapping[str, tuple[str, dict[str, str]]]:
        good = {"sub": "client", "aud": "here"}
        tokens = {
            "token": self._signed("client"),
            "token of another key": self._signed("client", OTHER_SECRET),
            "token expired": self._signed("client", exp=1),
            "token too early": self._signed("client", nbf=int(time.time()) + 3600),
            "token other audience": self._signed("client", **OTHER_AUDIENCE),
            "token no audience": self._signed("client", aud=None),
            "token unsigned": unsigned(good, {"alg": "none"}),
            "token of the pair": self._signed("client", self.pair),
            "token of another pair": self._signed("client", rsa_key()),
            "token of the pair expired": self._signed("client", self.pair, exp=1),
            "token of the pair other audience": self._signed("client", self.pair, **OTHER_AUDIENCE),
            "token by the public key as a secret": _by_hand(good, public_der(self.pair)),
        }
        return {name: ("token", {"token": shown}) for name, shown in tokens.items()} | {
            "nothing": ("nothing", {}),
            "token renewed": ("token file", {"file": str(self.renewed_file)}),
            "password": ("basic", {"user": "client", "password": PASSWORD}),
            "password wrong": ("basic", {"user": "client", "password": "wrong"}),
            "password unknown": ("basic", {"user": "somebody", "password": PASSWORD}),
            "certificate": self._certificate(self.authority.issue("client")),
            "certificate expired": self._certificate(self.authority.issue("client", file_name="old", is_expired=True)),
            "certificate of others": self._certificate(self.foreign.issue("client")),
            "certificate revoked": self._certificate(self.revoked),
            "oauth2": self._oauth2("secret", "here"),
            "oauth2 ending": self._oauth2("ending", "here"),
            "oauth2 wrong secret": self._oauth2("wrong", "here"),
            "oauth2 other audience": self._oauth2("secret", "elsewhere"),
        }

    @staticmethod
    def _certificate(certificate: Certificate) -> tuple[str, dict[str, str]]:
        return "tls", {"certificate": str(certificate.file), "key": str(certificate.key_file)}

    def _oauth2(self, secret: str, audience: str) -> tuple[str, dict[str, str]]:
        file = self.directory / f"oauth2-{secret}.json"
        content = {
            "type": "client_credentials", "client_id": "id", "client_secret": secret, "issuer_url": self.issuer_url
        }  # fmt: skip
        file.write_text(json.dumps(content))
        return "oauth2", {"issuer": self.issuer_url, "audience": audience, "key_file": str(file)}

    def described(self, cases: Mapping[str, Case], prefix: str) -> list[dict[str, Any]]:
        """Return the cases in the form that the programs read.

        Args:
            cases: by name.
            prefix: of the names of their topics, one each.
        """
        found = self.credentials()
        urls = self._urls("pulsar", "pulsar+ssl", "")
        return [
            {
                "name": name,
                "kind": found[case.shows][0],
                "params": found[case.shows][1],
                "url": urls[case.reach],
                "topic": f"persistent://{_namespace(case)}/{prefix}-{name}",
                "trust": self._trust(case),
                "verifies": case.verifies,
                "limit_s": LIMIT_S,
                "seconds": case.seconds,
            }
            for name, case in sorted(cases.items(), key=lambda item: -item[1].seconds)  # first those whose time runs
        ]

    def _urls(self, plain: str, tls: str, web: str) -> dict[str, str]:
        """Return addresses by kind of access, of the binary ports or of those that start with `web`."""
        addresses = self.addresses["web" if web else "plain"], self.addresses[f"{web}tls"]
        return {
            PLAIN: f"{plain}://{addresses[0]}",
            TLS: f"{tls}://{addresses[1]}",
            PLAIN_AT_TLS: f"{plain}://{addresses[1]}",
            TLS_AT_PLAIN: f"{tls}://{addresses[0]}",
        }

    def client_conf(self, case: Case) -> str:
        """Return the settings file of `pulsar-admin`, with Pulsar's names."""
        kind, params = self.credentials()[case.shows]
        plugin, shown = {
            "nothing": ("", ""),
            "token": ("AuthenticationToken", "token:{token}"),
            "basic": ("AuthenticationBasic", '{{"userId":"{user}","password":"{password}"}}'),
            "tls": ("AuthenticationTls", "tlsCertFile:{certificate},tlsKeyFile:{key}"),
            "oauth2": (
                "oauth2.AuthenticationOAuth2",
                '{{"type":"client_credentials","issuerUrl":"{issuer}","audience":"{audience}",'
                '"privateKey":"file://{key_file}"}}',
            ),
        }[kind]
        settings = {
            "webServiceUrl": self._urls("http", "https", "web_")[case.reach],
            "tlsTrustCertsFilePath": self._trust(case),
            "tlsEnableHostnameVerification": str(case.verifies).lower(),
            "tlsAllowInsecureConnection": "false",
        }
        if plugin:
            settings["authPlugin"] = f"org.apache.pulsar.client.impl.auth.{plugin}"
            settings["authParams"] = shown.format(**params)
        return "".join(f"{key}={value}\n" for key, value in settings.items())

    def _trust(self, case: Case) -> str:
        if case.reach in (PLAIN, PLAIN_AT_TLS):
            return ""
        return str((self.foreign if case.trusts_others else self.authority).file)

    @contextlib.contextmanager
    def renewing(self) -> Iterator[None]:
        """Keep a token in a file that remains valid for at least two seconds."""
        is_over = threading.Event()

        def renew() -> None:
            while True:
                fresh = self.renewed_file.with_suffix(".new")
                fresh.write_text(self._signed("client", exp=time.time() + RENEWED_LIFE_S))
                os.replace(fresh, self.renewed_file)
                written.set()
                if is_over.wait(RENEWAL_S):
                    return

        written = threading.Event()
        thread = threading.Thread(target=renew)
        thread.start()
        try:
            assert written.wait(30)
            yield
        finally:
            is_over.set()
            thread.join()

    @contextlib.contextmanager
    def issuing(self) -> Iterator[None]:
        """Run an OAuth2 server that issues a token for the secret `secret`, and a short-lived one for `ending`."""
        with ThreadingHTTPServer(("127.0.0.1", 0), _issuer(self)) as server:
            self.issuer_url = f"http://127.0.0.1:{server.server_port}"
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            try:
                yield
            finally:
                server.shutdown()
                thread.join()

    def issued(self, form: Mapping[str, list[str]]) -> tuple[int, dict[str, Any]]:
        """Respond to a token request: status and body."""
        audience, secret = (form.get(name, [""])[0] for name in ("audience", "client_secret"))
        if secret not in ("secret", "ending"):
            return 401, {"error": "invalid_client", "error_description": "not the secret"}
        ends = {"exp": time.time() + ENDING_S} if secret == "ending" else {}  # sooner than is said below
        shown = self._signed("client", aud=audience, **ends)
        return 200, {"access_token": shown, "token_type": "Bearer", "expires_in": 3600}


def _namespace(case: Case) -> str:
    if case.is_absent:
        return "absent/open"
    return "sec/closed" if case.is_closed else "sec/open"


def _by_hand(claims: dict[str, Any], key: bytes) -> str:
    """Sign a token with a value that the library rejects as a secret."""
    header = {"alg": "HS256"}
    signed = unsigned(claims, header).rpartition(".")[0]
    return unsigned(claims, header, hmac.digest(key, signed.encode(), "sha256"))


def _issuer(site: Site) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(200, {"issuer": site.issuer_url, "token_endpoint": f"{site.issuer_url}/token"})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            self._answer(*site.issued(parse_qs(body)))

        def _answer(self, status: int, value: dict[str, Any]) -> None:
            content = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    return Handler
