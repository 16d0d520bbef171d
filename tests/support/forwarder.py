"""A router in front of a broker, which forwards TCP connections to another port, as with address translation."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

CHUNK_BYTES = 1 << 16
TIMEOUT_S = 60.0


class Forwarder:
    """Forwards connections to one address.

    Attributes:
        port: port for clients.
        inner_ports: local ports of the connections to the target, as the target sees them.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self.inner_ports: set[int] = set()
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    @contextlib.contextmanager
    def forwarding(self) -> Iterator[None]:
        """Forward connections inside the with block."""
        self._start(self._accept)
        try:
            yield
        finally:
            for one in (self._listener, *self._open):
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            for thread in self._threads:
                thread.join(TIMEOUT_S)
            for one in (self._listener, *self._open):
                one.close()

    def _start(self, run: object, *arguments: object) -> None:
        thread = threading.Thread(target=run, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the end of the block
            while True:
                outer, _ = self._listener.accept()
                self._open.append(outer)
                inner = socket.create_connection(self._target, TIMEOUT_S)
                inner.settimeout(None)
                self._open.append(inner)
                self.inner_ports.add(inner.getsockname()[1])
                self._start(self._copy, outer, inner)
                self._start(self._copy, inner, outer)

    @staticmethod
    def _copy(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)
