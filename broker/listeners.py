"""Parsing of Pulsar's `advertisedListeners` and `bindAddresses`.

Clients behind NAT, in other networks or outside a container reach a broker at other addresses than those it listens on.
A listener is a name for a set of addresses. Lookups return these addresses to clients that request the listener or
connected to one of its sockets.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from ..errors import InvalidConfig

SCHEMES = ("pulsar", "pulsar+ssl", "http", "https")
TLS_SCHEMES = ("pulsar+ssl", "https")
OWN_LISTENER = "magnetar"
"""Listener for the worker of a standalone: a loopback socket, on which lookups return that socket's address."""
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_BIND = re.compile(r"(\w+):(.+)", re.ASCII)

Listeners = Mapping[str, Mapping[str, str]]
"""Addresses by listener name and scheme, in configuration order."""


class BindAddress(NamedTuple):
    """An additional address to listen on, and the listener for clients that connect to it."""

    listener: str
    scheme: str
    host: str
    port: int

    @property
    def has_tls(self) -> bool:
        """Whether the socket uses TLS."""
        return self.scheme in TLS_SCHEMES

    def __str__(self) -> str:
        return f"{self.listener}:{self.scheme}://{url_host(self.host)}:{self.port}"


def url_host(host: str) -> str:
    """Return a host in URL syntax, with brackets around an IPv6 address."""
    return f"[{host}]" if ":" in host else host


def check_host(name: str, host: str) -> str:
    """Return a host name or IP address without brackets.

    Raises:
        InvalidConfig: the value is neither, for example because it includes a port.
    """
    plain = host.removeprefix("[").removesuffix("]")
    if not _is_host(plain):
        raise InvalidConfig(f"{name} {host[:80]!r} is not a host name or an IP address: remove any scheme or port")
    return plain


def read_listeners(text: str) -> Listeners:
    """Parse `advertisedListeners`: ``name:scheme://host:port``, separated by commas.

    Raises:
        InvalidConfig: an entry is malformed, a listener has two addresses for one scheme, or two listeners share one.
    """
    found: dict[str, dict[str, str]] = {}
    owners: dict[str, str] = {}
    for entry in _entries(text):
        name, _, url = (part.strip() for part in entry.partition(":"))
        if not name or not url or url.startswith("//"):
            raise _malformed("advertisedListeners", entry, "missing listener name")
        _check_name("advertisedListeners", name)
        scheme, host, port = _address("advertisedListeners", entry, url)
        if port == 0:
            raise _malformed("advertisedListeners", entry, "clients cannot connect to port 0")
        urls = found.setdefault(name, {})
        if scheme in urls:
            raise InvalidConfig(f"advertisedListeners: listener {name!r} has two {scheme}:// addresses: remove one")
        place = f"{host}:{port}"
        if owners.setdefault(place, name) != name:
            raise InvalidConfig(
                f"advertisedListeners: {place} is the address of both {owners[place]!r} and {name!r}: use a separate"
                " address for each listener"
            )
        urls[scheme] = f"{scheme}://{url_host(host)}:{port}"
    return found


def read_bind_addresses(text: str) -> tuple[BindAddress, ...]:
    """Parse `bindAddresses`: ``listener:scheme://host:port``, separated by commas.

    Raises:
        InvalidConfig: an entry is malformed, or an address is listed twice.
    """
    found: list[BindAddress] = []
    for entry in _entries(text):
        match = _BIND.fullmatch(entry)
        if match is None or match[2].startswith("//"):
            raise _malformed("bindAddresses", entry, "missing listener name")
        _check_name("bindAddresses", match[1])
        address = BindAddress(match[1], *_address("bindAddresses", entry, match[2]))
        if address.port and any((other.host, other.port) == (address.host, address.port) for other in found):
            raise InvalidConfig(f"bindAddresses: {address.host}:{address.port} is listed twice: remove one")
        found.append(address)
    return tuple(found)


def check_listeners(listeners: Listeners, internal: str, bound: tuple[BindAddress, ...]) -> None:
    """Check that all referenced listeners are advertised.

    Raises:
        InvalidConfig: the internal listener or the listener of a bind address is not advertised.
    """
    known = ", ".join(listeners)
    if listeners and internal and internal not in listeners:
        raise InvalidConfig(f"internalListenerName {internal!r} is not in advertisedListeners: expected one of {known}")
    for address in bound:
        if address.listener not in (*listeners, OWN_LISTENER):
            raise InvalidConfig(
                f"bindAddresses: listener {address.listener!r} is not in advertisedListeners"
                f"{f': expected one of {known}' if known else ', which is not set: add it there'}"
            )


def _is_host(text: str) -> bool:
    """Return whether a string is a host name or an IP address without brackets."""
    if ":" not in text:
        return _HOST.fullmatch(text) is not None
    try:
        return ipaddress.IPv6Address(text).scope_id is None
    except ValueError:
        return False


def _entries(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(",") if entry.strip()]


def _check_name(setting: str, name: str) -> None:
    if name == OWN_LISTENER:
        raise InvalidConfig(f"{setting}: the listener name {name!r} is reserved: choose another")


def _address(setting: str, entry: str, url: str) -> tuple[str, str, int]:
    """Return the scheme, host and port of an entry's address."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise _malformed(setting, entry, str(error).lower()) from error
    if parts.scheme not in SCHEMES:
        raise _malformed(setting, entry, f"the scheme is not one of {', '.join(SCHEMES)}")
    if not _is_host(host) or port is None or parts.path or parts.query or parts.fragment or "@" in parts.netloc:
        raise _malformed(setting, entry, "the address is not scheme://host:port")
    return parts.scheme, host, port


def _malformed(setting: str, entry: str, reason: str) -> InvalidConfig:
    return InvalidConfig(f"{setting}: {entry[:120]!r} is malformed ({reason}): expected name:pulsar://host:port")
