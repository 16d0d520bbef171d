"""The process's open file limit, and the share of it that is available for connections.

Connections and ledgers are both open files: if clients could use up the limit, the storage could not write. So each
type of connection is limited to a number of sixteenths, and the rest is reserved for the server itself.
"""

from __future__ import annotations

import contextlib
import resource

KNOWN_CONNECTIONS = 7
"""Sixteenths for connections of the binary protocol that have sent CONNECT."""
UNKNOWN_CONNECTIONS = 1
"""Sixteenths for connections of the binary protocol that have not sent CONNECT yet."""
HANDSHAKES = 2
"""Sixteenths for TLS handshakes."""
HTTP_CONNECTIONS = 4
_PARTS = 16


def raise_limit() -> None:
    """Raise the open file limit as far as the system allows, because many shells set a low limit.

    Processes that should keep the low limit, such as those that run user code, must be started before this call.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # for example on a system with a lower maximum
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def part(sixteenths: int, most: int, least: int = 16) -> int:
    """Return a number of sixteenths of the open file limit, clamped to ``least`` and ``most``."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if files == resource.RLIM_INFINITY else min(most, max(least, files * sixteenths // _PARTS))
