"""Service URLs: ``pulsar://host[:port][,host[:port]…]``, and ``pulsar+ssl://…`` with TLS."""

from __future__ import annotations

from typing import NamedTuple

from ...errors import InvalidConfig

DEFAULT_PORT = 6650
DEFAULT_TLS_PORT = 6651
SCHEME = "pulsar://"
TLS_SCHEME = "pulsar+ssl://"


class HostPort(NamedTuple):
    """The address of a broker or proxy."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Address(NamedTuple):
    """The address of a broker, and the address to connect to; they differ behind a proxy."""

    logical: HostPort
    physical: HostPort

    @property
    def is_proxied(self) -> bool:
        """Whether the connection goes to a proxy."""
        return self.logical != self.physical


class ServiceUrl(NamedTuple):
    """The service URL of a cluster.

    Attributes:
        hosts: one or more alternative hosts.
        is_tls: whether to use TLS.
    """

    hosts: tuple[HostPort, ...]
    is_tls: bool = False


def parse_service_url(url: str) -> ServiceUrl:
    """Parse a service URL.

    Raises:
        InvalidConfig: unsupported scheme, missing host or invalid port.
    """
    for scheme, port in ((SCHEME, DEFAULT_PORT), (TLS_SCHEME, DEFAULT_TLS_PORT)):
        if url.startswith(scheme):
            parts = url[len(scheme) :].rstrip("/").split(",")
            return ServiceUrl(tuple(_parse_host(url, part, port) for part in parts), scheme == TLS_SCHEME)
    given = url.partition("://")[0] if "://" in url else "none"
    raise InvalidConfig(f"invalid service URL {url!r}: unsupported scheme {given}: expected {SCHEME} or {TLS_SCHEME}")


def _parse_host(url: str, text: str, default_port: int) -> HostPort:
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = text, str(default_port)
    host = host.removeprefix("[").removesuffix("]")
    if not host or "/" in host:
        raise InvalidConfig(f"invalid service URL {url!r}: no host in {text!r}: expected {SCHEME}host:port")
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise InvalidConfig(f"invalid service URL {url!r}: invalid port {port!r}: expected 1 to 65535")
    return HostPort(host, int(port))
