"""Advertised listeners and additional bind addresses: parsing of Pulsar's `advertisedListeners` and `bindAddresses`.

Clients behind NAT, in other networks or outside a container use other addresses for a broker than the ones it listens
on. Each listener is a name with the addresses that lookups return to clients that ask for it, or that connected to a
socket of that name.
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
"""The listener of standalone's own worker: a socket on loopback, whose address lookups on it return."""
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_BIND = re.compile(r"(\w+):(.+)", re.ASCII)

Listeners = Mapping[str, Mapping[str, str]]
"""Addresses by listener name and scheme, in the order of the setting."""


class BindAddress(NamedTuple):
    """An additional address to listen on; clients that connect to it use a listener."""

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
    """Return a host in URL syntax."""
    return f"[{host}]" if ":" in host else host


def check_host(name: str, host: str) -> str:
    """Return the name or address of a host.

    Raises:
        InvalidConfig: it is neither, for example because it has a port.
    """
    plain = host.removeprefix("[").removesuffix("]")
    if not _is_host(plain):
        raise InvalidConfig(f"{name} {host[:80]!r} is not a host name or an IP address: leave out scheme and port")
    return plain


def read_listeners(text: str) -> Listeners:
    """Parse `advertisedListeners`: ``name:scheme://host:port``, separated by commas.

    Raises:
        InvalidConfig: an entry is malformed, a listener has two addresses of one scheme, or two have the same address.
    """
    found: dict[str, dict[str, str]] = {}
    owners: dict[str, str] = {}
    for entry in _entries(text):
        name, _, url = (part.strip() for part in entry.partition(":"))
        if not name or not url or url.startswith("//"):
            raise _malformed("advertisedListeners", entry, "it has no listener name")
        _check_name("advertisedListeners", name)
        scheme, host, port = _address("advertisedListeners", entry, url)
        if port == 0:
            raise _malformed("advertisedListeners", entry, "clients cannot connect to port 0")
        urls = found.setdefault(name, {})
        if scheme in urls:
            raise InvalidConfig(f"advertisedListeners: listener {name!r} has two {scheme}:// addresses: keep one")
        place = f"{host}:{port}"
        if owners.setdefault(place, name) != name:
            raise InvalidConfig(
                f"advertisedListeners: {place} is the address of {owners[place]!r} and of {name!r}: each listener needs"
                " its own"
            )
        urls[scheme] = f"{scheme}://{url_host(host)}:{port}"
    return found


def read_bind_addresses(text: str) -> tuple[BindAddress, ...]:
    """Parse `bindAddresses`: ``listener:scheme://host:port``, separated by commas.

    Raises:
        InvalidConfig: an entry is malformed, or an address is given twice.
    """
    found: list[BindAddress] = []
    for entry in _entries(text):
        match = _BIND.fullmatch(entry)
        if match is None or match[2].startswith("//"):
            raise _malformed("bindAddresses", entry, "it has no listener name")
        _check_name("bindAddresses", match[1])
        address = BindAddress(match[1], *_address("bindAddresses", entry, match[2]))
        if address.port and any((other.host, other.port) == (address.host, address.port) for other in found):
            raise InvalidConfig(f"bindAddresses: {address.host}:{address.port} is given twice: keep one")
        found.append(address)
    return tuple(found)


def check_listeners(listeners: Listeners, internal: str, bound: tuple[BindAddress, ...]) -> None:
    """Check that listener names are advertised.

    Raises:
        InvalidConfig: the internal listener, or one of a bind address, is not advertised.
    """
    known = ", ".join(listeners)
    if listeners and internal and internal not in listeners:
        raise InvalidConfig(f"internalListenerName {internal!r} is not in advertisedListeners, which has {known}")
    for address in bound:
        if address.listener not in (*listeners, OWN_LISTENER):
            raise InvalidConfig(
                f"bindAddresses: listener {address.listener!r} is not in advertisedListeners"
                f"{f', which has {known}' if known else ': set it, too'}"
            )


def _is_host(text: str) -> bool:
    """Return whether a text is a host name or an IP address, without brackets."""
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
        raise InvalidConfig(f"{setting}: the listener name {name!r} is reserved: use another one")


def _address(setting: str, entry: str, url: str) -> tuple[str, str, int]:
    """Return scheme, host and port of an entry's address."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise _malformed(setting, entry, str(error).lower()) from error
    if parts.scheme not in SCHEMES:
        raise _malformed(setting, entry, f"its scheme is not one of {', '.join(SCHEMES)}")
    if not _is_host(host) or port is None or parts.path or parts.query or parts.fragment or "@" in parts.netloc:
        raise _malformed(setting, entry, "its address is not scheme://host:port")
    return parts.scheme, host, port


def _malformed(setting: str, entry: str, reason: str) -> InvalidConfig:
    return InvalidConfig(f"{setting}: {entry[:120]!r} is malformed, {reason}: expected name:pulsar://host:port")
