"""A real Apache Pulsar with authentication, authorization and TLS, as the golden conversations were recorded on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from .certificates import Authority, Certificate
from .pulsar import ApachePulsar, free_ports, of_environment, started
from .tokens import PROVIDER_BASIC, PROVIDER_TLS, PROVIDER_TOKEN, SECRET, data_url, token

NAMESPACE = "sec/ns"
REFRESH_CHECK_S = 1
USER, PASSWORD = "ada", "lovelace"
HTPASSWD = f"{USER}:$apr1$magnetar$vgTscSkEbqcY0LbkLCHRi/\n"


@dataclass
class SecurePulsar:
    """It, and who may do what: role ``superuser`` all, ``consumer`` and ``ada`` produce and consume in `NAMESPACE`.

    Attributes:
        pulsar: the server.
        authority: of its certificate, and of clients' ones.
        tls_port: of the broker.
        web_tls_port: of the REST interface.
    """

    pulsar: ApachePulsar
    authority: Authority
    tls_port: str
    web_tls_port: str

    @property
    def service_url(self) -> str:
        """Without TLS."""
        return self.pulsar.service_url

    @property
    def tls_url(self) -> str:
        return f"pulsar+ssl://127.0.0.1:{self.tls_port}"

    @property
    def web_tls_url(self) -> str:
        return f"https://127.0.0.1:{self.web_tls_port}"

    @property
    def ca(self) -> str:
        """File of the authority that clients must trust."""
        return str(self.authority.file)

    def topic(self, name: str) -> str:
        return f"persistent://{NAMESPACE}/{name}-{time.time_ns()}"

    def token(self, role: str, life_s: float | None = None, **claims: Any) -> str:
        """A token that is good, for ever unless it is said for how long."""
        return token(role, **claims) if life_s is None else token(role, exp=time.time() + life_s, **claims)

    def certificate(self, role: str) -> Certificate:
        """A client's certificate."""
        return self.authority.issue(role, [])


@contextmanager
def running_secure_pulsar(directory: Path) -> Iterator[SecurePulsar | None]:
    """One that the starter of the environment starts; None without a starter."""
    it = of_environment(directory)
    if it is None or it.starter is None:
        yield None
        return
    authority = Authority(directory / "ca")
    server = authority.issue("broker", ["127.0.0.1"])
    (directory / "htpasswd").write_text(HTPASSWD)
    tls_port, web_tls_port = free_ports(2)
    superuser = token("superuser")
    it.flags = ()
    it.headers = {"Authorization": f"Bearer {superuser}"}
    it.settings = (
        "authenticationEnabled=true", "authorizationEnabled=true",
        f"authenticationProviders={PROVIDER_TOKEN},{PROVIDER_BASIC},{PROVIDER_TLS}",
        f"tokenSecretKey={data_url(SECRET)}", f"basicAuthConf=file://{directory / 'htpasswd'}",
        "superUserRoles=superuser", f"authenticationRefreshCheckSeconds={REFRESH_CHECK_S}",
        "brokerClientAuthenticationPlugin=org.apache.pulsar.client.impl.auth.AuthenticationToken",
        f"brokerClientAuthenticationParameters=token:{superuser}",
        f"brokerServicePortTls={tls_port}", f"webServicePortTls={web_tls_port}",
        f"tlsCertificateFilePath={server.file}", f"tlsKeyFilePath={server.key_file}",
        f"tlsTrustCertsFilePath={authority.file}", "webServiceTlsProvider=",
    )  # fmt: skip
    with started(it):
        _grant(it)
        yield SecurePulsar(it, authority, tls_port, web_tls_port)


def _grant(it: ApachePulsar) -> None:
    """Make the tenant and the namespace, and let two roles in."""
    with httpx.Client(base_url=f"{it.web_url}/admin/v2/", headers=it.headers, timeout=30) as admin:
        tenant = {"adminRoles": [], "allowedClusters": ["standalone"]}
        admin.put("tenants/sec", json=tenant).raise_for_status()
        admin.put(f"namespaces/{NAMESPACE}", json={}).raise_for_status()
        for role in ("consumer", USER):
            admin.post(f"namespaces/{NAMESPACE}/permissions/{role}", json=["produce", "consume"]).raise_for_status()
