"""Finding the state store that runs beside a broker, as under `magnetar standalone`.

The broker announces it in its internal configuration. Apache Pulsar has ``stateStorageServiceUrl`` there, too, for a
table service that speaks another protocol: an answer without ``brokerServiceUrl``, which only ours have, is ignored.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from ...security.client_credentials import ClientCredentials
from ...web.client import request

STARTING_S = 10.0
"""How long to wait for a state store that is starting."""
_PATH = "/admin/v2/brokers/internal-configuration"
_TIMEOUT_S = 5.0
_PAUSE_S = 0.2


class AnnouncedStore(NamedTuple):
    """A state store that a broker announces.

    Attributes:
        url: ``bk://host:port``, without a token.
        broker_urls: where that broker speaks the binary protocol, without TLS and with it.
    """

    url: str
    broker_urls: tuple[str, ...]


def announced_state_store(admin_url: str, credentials: ClientCredentials | None = None) -> AnnouncedStore | None:
    """Return the state store beside a broker; None if it announces none, or refuses to tell this role. Blocking.

    Raises:
        ConnectionLost: the REST interface does not answer.
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
    if not isinstance(found, dict) or not found.get("brokerServiceUrl") or not found.get("stateStorageServiceUrl"):
        return None
    urls = (found["brokerServiceUrl"], found.get("brokerServiceUrlTls"))
    return AnnouncedStore(str(found["stateStorageServiceUrl"]), tuple(str(url) for url in urls if url))
