"""Ports for servers that are started again on the port that they had.

A port that is free is anybody's: between the end of a server and its next start another test's server may be given it.
One that is bound here, and not listened on, is given to nobody who asks for any port. Whoever asks for this one gets it
if it sets SO_REUSEADDR, as every server does that wants to start again while old connections linger.
"""

from __future__ import annotations

import os
import socket
import weakref


class Reserved:
    """Ports that are kept for as long as this object lives."""

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
