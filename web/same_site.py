"""Same-site check: rejects requests sent by pages of other sites, and requests for other host names.

A browser sends requests on behalf of any open page, even to servers on its own machine, and deploying a function runs
code. Three headers that pages cannot forge identify such requests:

- `Host`: a page whose name was made to resolve to this machine (DNS rebinding) still sends its own name. Addresses
  cannot be rebound, so all addresses are accepted, but names only if they are this server's.
- `Origin`: the site of the page that sent the request. It must be this server, or a name that the settings allow.
- `Sec-Fetch-Site`: the relation between page and server, even for requests without an `Origin`.

Clients other than browsers send neither of the last two, and set `Host` to the name to which they connect.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import InvalidConfig

SETTING = "webServiceAllowedHosts (--allowed-hosts)"
_LOOPBACK_NAMES = frozenset({"localhost", "ip6-localhost", "ip6-loopback"})
_ALL_ADDRESSES = ("0.0.0.0", "::", "")  # noqa: S104 (compared with, not bound to)
_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")
_HOST = re.compile(r"(\[[^\[\]@/?#\s]*\]|[^:\[\]@/?#\s]*)(?::([0-9]{0,5}))?")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_MAX_SHOWN = 100


@dataclass(frozen=True, slots=True)
class AllowedNames:
    """The names of a web server.

    Attributes:
        own: names of this machine, and names on which the server listens or that it advertises.
        configured: names added by the settings, whose pages may also send requests.
        is_loopback: whether only this machine can connect. If not, names without a dot are also accepted, because only
            the local network can resolve them, not public DNS.
        setting: name of the setting that adds a name, for error messages.
    """

    own: frozenset[str]
    configured: frozenset[str] = frozenset()
    is_loopback: bool = True
    setting: str = SETTING

    def has(self, name: str) -> bool:
        """Return whether a name is accepted as one of this server's."""
        if _address(name) is not None or name in self.own or name in self.configured:
            return True
        if _is_loopback(name) or name.endswith(".localhost"):
            return True
        return not self.is_loopback and "." not in name


def allowed_names(bound: str, configured: Iterable[str] = (), *advertised: str) -> AllowedNames:
    """Return the names of a server.

    Args:
        bound: address or name on which the server listens.
        configured: additional names without ports.
        advertised: names under which the server is advertised.

    Raises:
        InvalidConfig: a configured name is not a valid host name.
    """
    added = {host_name(text) for text in configured}
    own = {_plain(name) for name in (bound, *advertised, *_machine_names()) if name not in _ALL_ADDRESSES}
    return AllowedNames(frozenset(own), frozenset(added), _is_loopback(_plain(bound)))


def host_name(text: str) -> str:
    """Return a host name in normalized form for comparisons.

    Raises:
        InvalidConfig: the string is not a valid host name.
    """
    name = _plain(text)
    if _address(name) is None and not _NAME.fullmatch(name):
        raise InvalidConfig(f"{SETTING}: {text[:_MAX_SHOWN]!r} is not a valid host name: list host names without ports")
    return name


def _machine_names(hosts: Path = Path("/etc/hosts")) -> set[str]:
    """Return this machine's names that need no name service: its host name and its names in /etc/hosts."""
    own = socket.gethostname()
    names = {own}
    try:
        lines = hosts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return names
    for line in lines:
        address, *given = line.partition("#")[0].split() or [""]
        if own in given or _is_loopback(address):
            names.update(given)
    return names


def refusal_of(headers: Iterable[tuple[bytes, bytes]], names: AllowedNames) -> str | None:
    """Return why a request must be rejected, or None if it is accepted. Pure.

    Args:
        headers: request headers, with names in lower case.
        names: the server's names.
    """
    found: dict[bytes, str] = {}
    for name, value in headers:
        if name in (b"host", b"origin", b"sec-fetch-site"):
            if name in found:
                return f"the request has two {name.decode().title()} headers"
            found[name] = value.decode("latin-1").strip()
    host = found.get(b"host")
    place = None
    if host:  # browsers always send one
        place = _split(host)
        if place is None:
            return f"Host {_shown(host)} is not a valid host name"
        if not names.has(place[0]):
            return f"Host {_shown(host)} is not a known name of this server; if it should be, add it to {names.setting}"
    return _refusal_of_page(found, place, names)


def _refusal_of_page(
    found: Mapping[bytes, str], place: tuple[str, int | None] | None, names: AllowedNames
) -> str | None:
    origin, relation = found.get(b"origin"), found.get(b"sec-fetch-site")
    remedy = (
        f"requests from web pages of other sites are rejected; if the page is yours, add its host to {names.setting}"
    )
    if origin is not None:
        scheme, _, rest = origin.partition("://")
        source = _split(rest) if scheme in _DEFAULT_PORTS and rest else None
        if source is not None and source[0] in names.configured:
            return None
        if source is None or place is None or not _is_same(scheme, source, place, names):
            return f"Origin {_shown(origin)} is not this server: {remedy}"
        return None
    if relation in (None, "same-origin", "none"):
        return None
    return f"Sec-Fetch-Site {_shown(relation or '')}: {remedy}"


def _is_same(scheme: str, source: tuple[str, int | None], place: tuple[str, int | None], names: AllowedNames) -> bool:
    """Return whether a page is from this server, under the name in Host or another of its names, on the same port."""
    standard = _DEFAULT_PORTS[scheme]
    if (source[1] or standard) != (place[1] or standard):
        return False
    if source[0] == place[0]:
        return True
    if _is_loopback(place[0]):  # the same machine under several names
        return _is_loopback(source[0])
    return source[0] in names.own and not _is_loopback(source[0])


def _split(text: str) -> tuple[str, int | None] | None:
    """Return the name (lower case, no brackets) and port of ``name:port``, or None for any other string."""
    match = _HOST.fullmatch(text)
    if match is None or not match[1] or match[1] == "[]":
        return None
    return _plain(match[1]), int(match[2]) if match[2] else None


def _plain(name: str) -> str:
    return name.strip().strip("[]").rstrip(".").lower()


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name.replace("%25", "%"))
    except ValueError:
        return None


def _is_loopback(name: str) -> bool:
    address = _address(name)
    return name in _LOOPBACK_NAMES if address is None else address.is_loopback


def _shown(text: str) -> str:
    return ascii(text[:_MAX_SHOWN])
