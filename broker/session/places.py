"""Admission of connections, limited in total and per client.

A client is a role, or an address if the role is unknown. Connections that have not sent CONNECT are evicted in favor of
newer ones, starting with the address that has the most. Connections that have sent it are never evicted; a client that
has used its share is rejected.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import TYPE_CHECKING

from ...security.open_files import KNOWN_CONNECTIONS, UNKNOWN_CONNECTIONS, part
from ...tasks import Room, Shares

if TYPE_CHECKING:
    from .connection import Connection

UNKNOWN_MAX = 1024
KNOWN_MAX = 1 << 20
_TELL_S = 60.0
_REMEDY = "close some, or raise the broker's limit of open files (ulimit -n)"

log = logging.getLogger(__name__)


class ConnectionPlaces:
    """The connections of one broker, counted against its limits."""

    def __init__(self) -> None:
        """Derive the limits from the number of files that this process may open."""
        self.max_unknown = part(UNKNOWN_CONNECTIONS, UNKNOWN_MAX)
        most = part(KNOWN_CONNECTIONS, KNOWN_MAX)
        self._known = Shares(most, most // 2)
        self._clients: dict[Connection, str] = {}  # after CONNECT
        self._unknown: dict[Connection, str] = {}  # addresses, in order of arrival
        self._from: Counter[str] = Counter()
        self._told_s = float("-inf")

    def __repr__(self) -> str:
        return f"ConnectionPlaces({self._known!r}, unknown={len(self._unknown)} of {self.max_unknown})"

    def arrived(self, connection: Connection) -> Connection | None:
        """Register a new connection, and return a connection to evict for it, or None."""
        address = _host(connection)
        self._unknown[connection] = address
        self._from[address] += 1
        if len(self._unknown) <= self.max_unknown:
            return None
        (most, _), *_ = self._from.most_common(1)
        return next(one for one, its_address in self._unknown.items() if its_address == most)

    def admit(self, connection: Connection) -> str:
        """Admit a connection that has sent CONNECT; return an error message if it is rejected, else an empty string."""
        self._forget_unknown(connection)
        roles = connection.roles
        role = None if roles is None else roles.original or roles.role
        client = f"address {_host(connection)}" if role is None else f"role {role}"
        room = self._known.take(client)
        if room is Room.FREE:
            self._clients[connection] = client
            return ""
        if room is Room.SHARE_USED:
            refusal = f"{client} has reached the limit of {self._known.per_key} connections per client: {_REMEDY}"
        else:
            refusal = f"all {self._known.size} connections of this broker are in use: {_REMEDY}"
        now_s = time.monotonic()
        if now_s - self._told_s >= _TELL_S:
            self._told_s = now_s
            log.warning("rejected %r: %s; not logging further rejections for one minute", connection, refusal)
        return refusal

    def left(self, connection: Connection) -> None:
        """Unregister a connection."""
        self._forget_unknown(connection)
        client = self._clients.pop(connection, None)
        if client is not None:
            self._known.give_back(client)

    def _forget_unknown(self, connection: Connection) -> None:
        address = self._unknown.pop(connection, None)
        if address is not None:
            self._from[address] -= 1
            if not self._from[address]:
                del self._from[address]


def _host(connection: Connection) -> str:
    return connection.address.rpartition(":")[0].removeprefix("/")
