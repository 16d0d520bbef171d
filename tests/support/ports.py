"""Reserve ports for servers that are restarted on the same port.

A free port is available to all processes: between the end and the restart of a server, another test's server may get
it. A port that is bound here without listening is never assigned to a process that requests any port. A process that
requests this port gets it with SO_REUSEADDR, which servers set to restart while old connections linger.
"""

from __future__ import annotations

import os
import socket
import weakref


class Reserved:
    """Ports that are reserved while this object exists."""

    def __init__(self, count: int) -> None:
        self.numbers: list[int] = []
        kept: list[int] = []
        for _ in range(count):
            keeper = socket.socket()
            keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            keeper.bind(("127.0.0.1", 0))
            self.numbers.append(keeper.getsockname()[1])
            kept.append(keeper.detach())
        weakref.finalize(self, _close, kept)


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
