"""A port that passes connections on to another one, as NAT does, and counts them."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

from .ports import Reserved


class Forwarder:
    """Passes each connection on to `target`, a port of this machine that may be set after clients know this one.

    Attributes:
        port: where it listens, on 127.0.0.1.
        target: the port that connections are passed on to.
        count: how many connections came in.
    """

    def __init__(self) -> None:
        self._reserved = Reserved(1)
        self.port = self._reserved.numbers[0]
        self.target = 0
        self.count = 0
        self._server = socket.create_server(("127.0.0.1", self.port))
        self._open: list[socket.socket] = []

    @contextlib.contextmanager
    def running(self) -> Iterator[Forwarder]:
        """Accept connections until the context ends, which closes them."""
        thread = threading.Thread(target=self._accept)
        thread.start()
        try:
            yield self
        finally:
            # Closing a socket does not wake a thread that waits in accept(); shutting it down does.
            with contextlib.suppress(OSError):
                self._server.shutdown(socket.SHUT_RDWR)
            thread.join()
            self._server.close()

    def _accept(self) -> None:
        pipes: list[threading.Thread] = []
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                break
            self.count += 1
            try:
                broker = socket.create_connection(("127.0.0.1", self.target), timeout=10)
            except OSError:
                client.close()
                continue
            broker.settimeout(None)
            self._open += [client, broker]
            pipes += [threading.Thread(target=_copy, args=ends) for ends in ((client, broker), (broker, client))]
            for pipe in pipes[-2:]:
                pipe.start()
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for pipe in pipes:
            pipe.join()
        for one in self._open:
            one.close()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    """Copy bytes until either end closes, then close both directions."""
    with contextlib.suppress(OSError):
        while piece := source.recv(65536):
            sink.sendall(piece)
    for one in (source, sink):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
