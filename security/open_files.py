"""How many files this process may open, and the parts of them that a server gives to its clients.

Every connection is an open file, and so is every ledger: clients that could take them all would keep the storage from
writing. So each kind of connection has some sixteenths of them, and the rest is the server's own.
"""

from __future__ import annotations

import contextlib
import resource

KNOWN_CONNECTIONS = 7
"""Sixteenths for connections of the binary protocol that have sent CONNECT."""
UNKNOWN_CONNECTIONS = 1
"""Sixteenths for those that have not."""
HANDSHAKES = 2
"""Sixteenths for handshakes of TLS."""
HTTP_CONNECTIONS = 4
_PARTS = 16


def raise_limit() -> None:
    """Raise the limit of open files as far as the system allows, from the low one that many shells begin with.

    Before that, start what is to keep the low one, such as processes that run user code.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # such as of a system where only less is possible
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def part(sixteenths: int, most: int, least: int = 16) -> int:
    """Return how many of the files that this process may open are so many sixteenths, between two bounds."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if files == resource.RLIM_INFINITY else min(most, max(least, files * sixteenths // _PARTS))
