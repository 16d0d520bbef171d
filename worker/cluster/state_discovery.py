"""Discovery of a broker's state store, as with `magnetar standalone`.

The broker announces its state store in its internal configuration. Apache Pulsar's configuration also contains
``stateStorageServiceUrl``, for a table service with another protocol. A response without ``brokerServiceUrl`` and
``brokerServiceUrlTls``, which only Magnetar returns, is therefore ignored. Malformed or unreachable addresses are
ignored as well.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
import time
from typing import NamedTuple
from urllib.parse import urlsplit

from ...client.connections.service_url import parse_service_url
from ...errors import InvalidConfig
from ...security.client_credentials import ClientCredentials
from ...state.limits import address_of
from ...web.client import request

STARTING_S = 10.0
"""Time limit for a state store that is starting."""
_PATH = "/admin/v2/brokers/internal-configuration"
_TIMEOUT_S = 5.0
_PAUSE_S = 0.2
_log = logging.getLogger(__name__)


class AnnouncedStore(NamedTuple):
    """State store announced by a broker.

    Attributes:
        url: ``bk://host:port``, without a token.
        broker_urls: the broker's addresses for the binary protocol, without and with TLS.
    """

    url: str
    broker_urls: tuple[str, ...]


def announced_state_store(admin_url: str, credentials: ClientCredentials | None = None) -> AnnouncedStore | None:
    """Return a broker's state store, or None if it does not announce one or rejects this role. Blocking.

    Raises:
        ConnectionLost: the REST interface did not answer.
    """
    deadline_s = time.monotonic() + STARTING_S
    while True:
        answer = request(
            "GET", admin_url.rstrip("/") + _PATH, timeout_s=_TIMEOUT_S, connect_timeout_s=_TIMEOUT_S,
            credentials=credentials,
        )  # fmt: skip
        if answer.status != 503 or time.monotonic() > deadline_s:
            break
        time.sleep(_PAUSE_S)
    found = answer.json() if answer.is_success else None
    if not isinstance(found, dict):
        return None
    url = found.get("stateStorageServiceUrl")
    broker_urls = tuple(one for name in ("brokerServiceUrl", "brokerServiceUrlTls") if (one := found.get(name)))
    if not url or not broker_urls:
        return None
    if reason := _reason_against(url, broker_urls, admin_url):
        _log.warning("ignoring the state store announced by %s: %s", admin_url, reason)
        return None
    return AnnouncedStore(str(url), tuple(map(str, broker_urls)))


def _reason_against(url: object, broker_urls: tuple[object, ...], admin_url: str) -> str:
    """Return the reason why an announced store is unusable, or an empty string."""
    try:
        host, _ = address_of(str(url))
        for one in broker_urls:
            parse_service_url(str(one))
    except InvalidConfig as error:
        return str(error)
    if _is_loopback(host) and not _is_loopback(urlsplit(admin_url).hostname or ""):
        return f"{url} is only reachable on that machine"
    return ""


def _is_loopback(host: str) -> bool:
    """Return whether an address, or all addresses of a name, are loopback addresses. Blocking."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return all(ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in found)
