"""The process's open file limit, and the shares of it that a server reserves for connections.

Every connection is an open file, and so is every ledger: if clients could use all of them, the storage could not write.
So each type of connection is limited to some sixteenths of the limit, and the rest is for the server itself.
"""

from __future__ import annotations

import contextlib
import resource

KNOWN_CONNECTIONS = 7
"""Sixteenths for connections of the binary protocol that have sent CONNECT."""
UNKNOWN_CONNECTIONS = 1
"""Sixteenths for connections of the binary protocol that have not."""
HANDSHAKES = 2
"""Sixteenths for TLS handshakes."""
HTTP_CONNECTIONS = 4
_PARTS = 16


def raise_limit() -> None:
    """Raise the open file limit as far as the system allows, as many shells start with a low one.

    Before the call, start processes that should keep the low limit, such as those that run user code.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # for example on a system with a lower maximum
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def part(sixteenths: int, most: int, least: int = 16) -> int:
    """Return that many sixteenths of the open file limit, clamped to ``least`` and ``most``."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if files == resource.RLIM_INFINITY else min(most, max(least, files * sixteenths // _PARTS))
