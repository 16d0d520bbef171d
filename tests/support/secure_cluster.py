"""A broker with authentication, authorization and TLS: ours, and an Apache Pulsar with the same settings."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from .certificates import Authority, Certificate
from .pulsar import free_ports, of_environment, started
from .servers import running
from .tokens import PROVIDER_BASIC, PROVIDER_TLS, PROVIDER_TOKEN, SECRET, data_url, token

NAMESPACE = "sec/ns"
REFRESH_CHECK_S = 1
USER, PASSWORD = "ada", "lovelace"
HTPASSWD = f"{USER}:$apr1$magnetar$vgTscSkEbqcY0LbkLCHRi/\n"


@dataclass
class SecureCluster:
    """The cluster and its roles: ``superuser`` may do anything, ``consumer`` and ``ada`` may use topics in `NAMESPACE`.

    Attributes:
        service_url: broker URL without TLS.
        web_url: REST interface URL without TLS.
        authority: authority of the broker's certificate and of client certificates.
        tls_port: TLS port of the broker.
        web_tls_port: TLS port of the REST interface.
    """

    service_url: str
    web_url: str
    authority: Authority
    tls_port: str
    web_tls_port: str

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
        """Return a valid token, without expiry by default."""
        return token(role, **claims) if life_s is None else token(role, exp=time.time() + life_s, **claims)

    def certificate(self, role: str) -> Certificate:
        """Return a client's certificate."""
        return self.authority.issue(role, [])


@contextmanager
def running_secure_cluster(kind: str, directory: Path) -> Iterator[SecureCluster | None]:
    """Run our broker, or for ``pulsar`` one started by the environment's starter; yield None without a starter."""
    authority = Authority(directory / "ca")
    tls_port, web_tls_port = free_ports(2)
    settings = _settings(directory, authority, tls_port, web_tls_port)
    if kind == "ours":
        file = directory / "broker.conf"
        file.write_text("".join(f"{line}\n" for line in settings))
        with running("broker", directory, "--config", str(file)) as server:
            yield _granted(SecureCluster(server.service_url, server.web_url, authority, tls_port, web_tls_port))
        return
    it = of_environment(directory)
    if it is None or it.starter is None:
        yield None
        return
    it.flags = ()
    it.headers = _superuser()
    it.settings = settings
    with started(it):
        yield _granted(SecureCluster(it.service_url, it.web_url, authority, tls_port, web_tls_port))


def _settings(directory: Path, authority: Authority, tls_port: str, web_tls_port: str) -> tuple[str, ...]:
    server = authority.issue("broker", ["127.0.0.1"])
    (directory / "htpasswd").write_text(HTPASSWD)
    return (
        "authenticationEnabled=true", "authorizationEnabled=true",
        f"authenticationProviders={PROVIDER_TOKEN},{PROVIDER_BASIC},{PROVIDER_TLS}",
        f"tokenSecretKey={data_url(SECRET)}", f"basicAuthConf=file://{directory / 'htpasswd'}",
        "superUserRoles=superuser", f"authenticationRefreshCheckSeconds={REFRESH_CHECK_S}",
        "brokerClientAuthenticationPlugin=org.apache.pulsar.client.impl.auth.AuthenticationToken",
        f"brokerClientAuthenticationParameters=token:{token('superuser')}",
        f"brokerServicePortTls={tls_port}", f"webServicePortTls={web_tls_port}",
        f"tlsCertificateFilePath={server.file}", f"tlsKeyFilePath={server.key_file}",
        f"tlsTrustCertsFilePath={authority.file}", "webServiceTlsProvider=",
    )  # fmt: skip


def _superuser() -> dict[str, str]:
    return {"Authorization": f"Bearer {token('superuser')}"}


def _granted(cluster: SecureCluster) -> SecureCluster:
    """Create the tenant and the namespace, and grant access to two roles."""
    with httpx.Client(base_url=f"{cluster.web_url}/admin/v2/", headers=_superuser(), timeout=30) as admin:
        tenant = {"adminRoles": [], "allowedClusters": ["standalone"]}
        admin.put("tenants/sec", json=tenant).raise_for_status()
        admin.put(f"namespaces/{NAMESPACE}", json={}).raise_for_status()
        for role in ("consumer", USER):
            admin.post(f"namespaces/{NAMESPACE}/permissions/{role}", json=["produce", "consume"]).raise_for_status()
    return cluster
