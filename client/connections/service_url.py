"""Service URLs: ``pulsar://host[:port][,host[:port]…]``."""

from __future__ import annotations

from typing import NamedTuple

from ...errors import InvalidConfig

DEFAULT_PORT = 6650
_SCHEME = "pulsar://"


class HostPort(NamedTuple):
    """Where a broker or proxy listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Address(NamedTuple):
    """Which broker is meant and where to connect for it; the two differ behind a proxy."""

    logical: HostPort
    physical: HostPort

    @property
    def is_proxied(self) -> bool:
        """Whether the connection goes to a proxy."""
        return self.logical != self.physical


def parse_service_url(url: str) -> tuple[HostPort, ...]:
    """Return the hosts of a service URL, at least one.

    Raises:
        InvalidConfig: another scheme, no host or a bad port.
    """
    if not url.startswith(_SCHEME):
        scheme = url.partition("://")[0] if "://" in url else "none"
        raise InvalidConfig(f"service URL {url!r} has scheme {scheme}; supported is {_SCHEME}host:port")
    return tuple(_parse_host(url, part) for part in url[len(_SCHEME) :].rstrip("/").split(","))


def _parse_host(url: str, text: str) -> HostPort:
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or "/" in host:
        raise InvalidConfig(f"service URL {url!r} names no host in {text!r}; expected {_SCHEME}host:port")
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise InvalidConfig(f"service URL {url!r} has port {port!r}; expected a number from 1 to 65535")
    return HostPort(host, int(port))
