"""Reads tasks' requests for their driver's credentials, with limits for unauthenticated connections.

Any client that reaches the port can connect. No thread is therefore dedicated to a connection until it has sent a
complete request signed with the key. A single thread reads from all connections; each has a deadline, and if there are
too many, the one that has been idle longest is closed. Tasks send their requests immediately, so idle connections
cannot lock them out.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable

ASK_S = 5.0
"""Time limit for a connection to send its request."""
ASKING_MAX = 256
"""Maximum number of connections with incomplete requests."""
BACKLOG = 512
_REST_S = 0.1
_log = logging.getLogger(__name__)


class _Asking:
    """Connection with an incomplete request."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.deadline = time.monotonic() + ASK_S
        self.received = b""


class Questions:
    """Listening socket and the thread that reads from its connections.

    Attributes:
        port: port of the socket.
    """

    def __init__(self, host: str, question_bytes: int, take: Callable[[socket.socket, bytes], None]) -> None:
        """Start listening.

        Args:
            host: address of this machine.
            question_bytes: length of a request.
            take: called on the thread with a blocking socket, which it then owns, and the request; must not block.
        """
        self._question_bytes = question_bytes
        self._take = take
        self._listener = socket.create_server((host, 0), backlog=BACKLOG)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._asking: dict[socket.socket, _Asking] = {}  # oldest first, which is also the order of deadlines
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._woken, self._wakes = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="credential questions", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close the socket and all connections with incomplete requests."""
        self._closed.set()
        self._wakes.close()
        self._thread.join()

    def _run(self) -> None:
        with contextlib.closing(self._selector), self._listener, self._woken:
            while not self._closed.is_set():
                for key, _ in self._selector.select(self._until_deadline()):
                    if key.fileobj is self._listener:
                        self._accept()
                    elif isinstance(key.data, _Asking):
                        self._read(key.data)
                self._drop_late()
            for asking in list(self._asking.values()):
                self._drop(asking)

    def _until_deadline(self) -> float | None:
        oldest = next(iter(self._asking.values()), None)
        return None if oldest is None else max(oldest.deadline - time.monotonic(), 0)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:  # the client has already closed the connection
            return
        except OSError as error:  # for example, out of file descriptors
            _log.warning("cannot accept connections from tasks that request credentials: %s", error)
            self._closed.wait(_REST_S)
            return
        connection.setblocking(False)
        asking = self._asking[connection] = _Asking(connection)
        self._selector.register(connection, selectors.EVENT_READ, asking)
        if len(self._asking) > ASKING_MAX:
            self._drop(next(iter(self._asking.values())))

    def _read(self, asking: _Asking) -> None:
        if asking.connection not in self._asking:  # dropped after it was selected
            return
        try:
            data = asking.connection.recv(self._question_bytes - len(asking.received))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        asking.received += data
        if not data:
            self._drop(asking)
        elif len(asking.received) == self._question_bytes:
            self._forget(asking)
            asking.connection.setblocking(True)
            self._take(asking.connection, asking.received)

    def _drop_late(self) -> None:
        now = time.monotonic()
        for asking in list(self._asking.values()):
            if asking.deadline > now:
                return
            self._drop(asking)

    def _drop(self, asking: _Asking) -> None:
        self._forget(asking)
        asking.connection.close()

    def _forget(self, asking: _Asking) -> None:
        del self._asking[asking.connection]
        self._selector.unregister(asking.connection)
