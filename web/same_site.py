"""Rule for which requests are answered: those for a name of this server that no page of another site has sent.

A browser sends requests for every page that is open in it, to servers on its own machine too, and whoever can deploy a
function runs code. Three headers tell, which pages cannot forge:

- `Host`: a page whose name was made to resolve to this machine (DNS rebinding) still sends its own name. An address
  cannot be rebound, so addresses are fine; of names, those of this server.
- `Origin`: where the page comes from that sent the request. It must be this server, or a name that the settings allow.
- `Sec-Fetch-Site`: how page and server are related, also where a browser sends no `Origin`.

Programs that are no browsers send none of the last two and the name by which they were told to connect.
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
    """The names of one web server.

    Attributes:
        own: names of this machine and those that the server listens on or is told to others by.
        configured: names that the settings add; pages from there may send requests too.
        is_loopback: only this machine can connect. Elsewhere a name without a dot is fine too: it can only come from
            the network around, not from the internet's name service.
        setting: what adds a name, for errors.
    """

    own: frozenset[str]
    configured: frozenset[str] = frozenset()
    is_loopback: bool = True
    setting: str = SETTING

    def has(self, name: str) -> bool:
        """Return whether a request may name this server so."""
        if _address(name) is not None or name in self.own or name in self.configured:
            return True
        if _is_loopback(name) or name.endswith(".localhost"):
            return True
        return not self.is_loopback and "." not in name


def allowed_names(bound: str, configured: Iterable[str] = (), *advertised: str) -> AllowedNames:
    """Return the names of a server.

    Args:
        bound: the address or name that it listens on.
        configured: names without port that are added.
        advertised: under which others are told to reach it.

    Raises:
        InvalidConfig: a configured name is none.
    """
    added = {host_name(text) for text in configured}
    own = {_plain(name) for name in (bound, *advertised, *_machine_names()) if name not in _ALL_ADDRESSES}
    return AllowedNames(frozenset(own), frozenset(added), _is_loopback(_plain(bound)))


def host_name(text: str) -> str:
    """Return the name of a host as it is compared.

    Raises:
        InvalidConfig: it is none.
    """
    name = _plain(text)
    if _address(name) is None and not _NAME.fullmatch(name):
        raise InvalidConfig(f"{SETTING}: {text[:_MAX_SHOWN]!r} is no name of a host; give names without port")
    return name


def _machine_names(hosts: Path = Path("/etc/hosts")) -> set[str]:
    """Return the names of this machine that need no name service: its own, and what /etc/hosts has for it."""
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
    """Return why a request is not answered, None if it is; pure.

    Args:
        headers: of the request, names in lower case.
        names: of the server.
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
            return f"Host {_shown(host)} is no name of a host"
        if not names.has(place[0]):
            return f"Host {_shown(host)} is not a name of this server; if it is, add it to {names.setting}"
    return _refusal_of_page(found, place, names)


def _refusal_of_page(
    found: Mapping[bytes, str], place: tuple[str, int | None] | None, names: AllowedNames
) -> str | None:
    origin, relation = found.get(b"origin"), found.get(b"sec-fetch-site")
    remedy = f"requests of web pages elsewhere are refused; if it is one of yours, add its host to {names.setting}"
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
    """Return whether a page is this server's own: the name in Host, or another of ours, on the same port."""
    standard = _DEFAULT_PORTS[scheme]
    if (source[1] or standard) != (place[1] or standard):
        return False
    if source[0] == place[0]:
        return True
    if _is_loopback(place[0]):  # one machine by its several names
        return _is_loopback(source[0])
    return source[0] in names.own and not _is_loopback(source[0])


def _split(text: str) -> tuple[str, int | None] | None:
    """Return name (lower case, no brackets) and port of ``name:port``; None for anything else."""
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
