"""Servers that differ only in their security settings: none, with tokens, with TLS, and with both.

Each has its own broker, so that the plain one does not authenticate clients. If tokens are used, helpers that fill
topics and count messages connect without one, as an anonymous role with all permissions; the measured clients use a
token.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pulsar

from tests.support.certificates import Authority
from tests.support.servers import Server, running
from tests.support.tokens import PROVIDER_TOKEN, SECRET, data_url, token

from .plan import Plan

ADMIN, NOBODY = "bench", "nobody"


@dataclass(frozen=True)
class Posture:
    """Security settings of a server.

    Attributes:
        name: name in figures.
        has_token: whether clients use tokens, and authorization is enabled.
        has_tls: whether the measured clients use TLS.
    """

    name: str
    has_token: bool = False
    has_tls: bool = False


PLAIN = Posture("plain")
SECURED = (
    Posture("token", has_token=True),
    Posture("TLS", has_tls=True),
    Posture("TLS and a token", has_token=True, has_tls=True),
)
POSTURES = (PLAIN, *SECURED)


@dataclass
class Site:
    """A running broker, and optionally a functions worker, with the same security settings.

    Attributes:
        posture: security settings.
        authority: authority of its certificate.
        broker: broker process.
        worker: worker process; None without functions.
    """

    posture: Posture
    authority: Authority
    broker: Server
    worker: Server | None = field(default=None)

    @property
    def service_url(self) -> str:
        """Return the broker address for measured clients."""
        if not self.posture.has_tls:
            return self.broker.service_url
        return str(self.broker.addresses["brokerServiceUrlTls"])

    @property
    def admin_url(self) -> str:
        """Return the REST address for measured clients."""
        return str(self.broker.addresses["webServiceUrlTls"]) if self.posture.has_tls else self.broker.web_url

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers that authenticate REST requests as the measured role."""
        return {"Authorization": f"Bearer {token(ADMIN)}"} if self.posture.has_token else {}

    def client_settings(self) -> dict[str, Any]:
        """Return the settings for our client."""
        settings: dict[str, Any] = {}
        if self.posture.has_token:
            settings |= {"auth_plugin": "token", "auth_params": f"token:{token(ADMIN)}"}
        if self.posture.has_tls:
            settings["tls_trust_certs_file"] = str(self.authority.file)
        return settings

    def official_settings(self) -> dict[str, Any]:
        """Return the settings for the official client."""
        settings: dict[str, Any] = {}
        if self.posture.has_token:
            settings["authentication"] = pulsar.AuthenticationToken(token(ADMIN))
        if self.posture.has_tls:
            settings |= {"tls_trust_certs_file_path": str(self.authority.file), "tls_validate_hostname": True}
        return settings


@contextlib.contextmanager
def sites(
    plan: Plan, postures: Sequence[Posture] = POSTURES, *, with_functions: bool = False
) -> Iterator[dict[Posture, Site]]:
    """Run servers with these security settings; their data is deleted with the plan's directory."""
    directory = plan.directory / ("postures-functions" if with_functions else "postures")
    authority = Authority(directory / "ca")
    with contextlib.ExitStack() as stack:
        found: dict[Posture, Site] = {}
        for number, posture in enumerate(postures):
            below = directory / str(number)
            below.mkdir()
            site = Site(posture, authority, stack.enter_context(_broker(below, posture, authority)))
            if with_functions:
                site.worker = stack.enter_context(_worker(below, site))
            found[posture] = site
        yield found


@contextlib.contextmanager
def _broker(directory: Path, posture: Posture, authority: Authority) -> Iterator[Server]:
    certificate = authority.issue("server", file_name=f"server-{directory.name}")
    settings = [
        "brokerServicePortTls: 0", "webServicePortTls: 0",
        f"tlsCertificateFilePath: {certificate.file}", f"tlsKeyFilePath: {certificate.key_file}",
    ]  # fmt: skip
    if not posture.has_tls:
        settings = []
    if posture.has_token:
        settings += [
            "authenticationEnabled: true", f"authenticationProviders: [{PROVIDER_TOKEN}]",
            f"tokenSecretKey: '{data_url(SECRET)}'", "authorizationEnabled: true",
            f"superUserRoles: [{ADMIN}, {NOBODY}]", f"anonymousUserRole: {NOBODY}",
        ]  # fmt: skip
    with _running("broker", directory, settings) as server:
        yield server


@contextlib.contextmanager
def _worker(directory: Path, site: Site) -> Iterator[Server]:
    settings = [f"pulsarServiceUrl: {site.service_url}", f"pulsarWebServiceUrl: {site.admin_url}"]
    if site.posture.has_tls:
        settings.append(f"brokerClientTrustCertsFilePath: {site.authority.file}")
    if site.posture.has_token:
        settings += [
            "authenticationEnabled: true", f"authenticationProviders: [{PROVIDER_TOKEN}]",
            f"tokenSecretKey: '{data_url(SECRET)}'", "authorizationEnabled: true", f"superUserRoles: [{ADMIN}]",
            "brokerClientAuthenticationPlugin: token",
            f"brokerClientAuthenticationParameters: 'token:{token(ADMIN)}'",
        ]  # fmt: skip
    with _running("worker", directory / "worker", settings) as server:
        yield server


@contextlib.contextmanager
def _running(kind: str, directory: Path, settings: list[str]) -> Iterator[Server]:
    directory.mkdir(exist_ok=True)
    file = directory / f"{kind}.yml"
    file.write_text("\n".join(settings) + "\n" if settings else "{}\n")
    with running(kind, directory, "--config", str(file)) as server:
        yield server
