"""What the tasks of a function show on other machines: they ask its driver for it, each time that they show it.

Design: the token of a function is a file on the machine of its worker, written anew in time, and a run may take longer
than a token is good. So tasks are not given the token but a way to ask for one: the address of a socket of the driver,
and a key without which it answers nobody. They ask at every connection and whenever a broker asks again, so they show
what the driver would show at that moment. The key goes to the executors with the function's code and no further; who
has it has what the function may do, as long as its driver runs. A driver that is gone answers nobody, but its tasks end
with it, too.

A client certificate cannot be handed on so: its files have to be where the tasks run.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
import secrets
import socket
import threading
from base64 import b64decode, b64encode
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from ...errors import ConnectionLost, CredentialsUnavailable, InvalidConfig, MagnetarError
from ...security.client_credentials import ClientCredentials
from ...security.credentials.authentication import Authentication
from ...security.credentials.secret_file import SECRET_BYTES_MAX

ANSWER_S = 30.0
"""How long a driver may take: it may have to ask a server itself."""
_ASK_S = 5.0
"""How long one who connects may take to show the key."""
_THREADS = 8
_BACKLOG = 512
_KEY_CHARACTERS = 64
_ANSWER_BYTES_MAX = 4 * SECRET_BYTES_MAX
_log = logging.getLogger(__name__)


class CredentialsServer:
    """The driver's side, of one function.

    Attributes:
        security: that tasks are given.
    """

    def __init__(self, host: str, credentials: ClientCredentials) -> None:
        """Listen on an address of this machine that executors can reach."""
        self._credentials = credentials
        self._key = secrets.token_hex(_KEY_CHARACTERS // 2)
        self._socket = socket.create_server((host, 0), backlog=_BACKLOG)
        self._answering = ThreadPoolExecutor(_THREADS, "credentials of tasks")
        where = {
            "method": credentials.method, "host": host, "port": self._socket.getsockname()[1], "key": self._key,
        }  # fmt: skip
        self.security = replace(
            credentials.security,
            auth_plugin=f"{DriverAuthentication.__module__}:{DriverAuthentication.__name__}",
            auth_params=json.dumps(where),
        )
        self._thread = threading.Thread(target=self._accept, name="credentials of tasks", daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
                self._answering.submit(self._answer, connection)
            except (OSError, RuntimeError):
                return  # closed

    def _answer(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            connection.settimeout(_ASK_S)
            asked = _received(connection, _KEY_CHARACTERS)
            if hmac.compare_digest(asked, self._key.encode()):
                connection.sendall(json.dumps(self._shown()).encode())

    def _shown(self) -> dict[str, Any]:
        try:
            shown = b64encode(self._credentials.data()).decode()
            return {"data": shown, "headers": self._credentials.headers()}
        except MagnetarError as error:
            _log.warning("tasks ask for credentials, and there are none: %s", error)
            return {"error": str(error)}

    def close(self) -> None:
        """Answer nobody any more."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread, which a close alone does not
        self._socket.close()
        self._thread.join()
        self._answering.shutdown(wait=False, cancel_futures=True)


class DriverAuthentication(Authentication):
    """The tasks' side: shows what the driver has to show now."""

    def __init__(self, params: str) -> None:
        """Prepare; nobody is asked yet.

        Args:
            params: of `CredentialsServer.security`.

        Raises:
            InvalidConfig: they are none.
        """
        try:
            where = json.loads(params)
            self.method = str(where["method"])
            self._address, self._key = (str(where["host"]), int(where["port"])), str(where["key"]).encode()
        except (ValueError, KeyError, TypeError):
            raise InvalidConfig("this plugin is for tasks of Spark functions, whose driver gives its params") from None

    def data(self) -> bytes:
        """Return what the driver would show to a broker; see `Authentication.data`."""
        return b64decode(self._ask()["data"])

    def headers(self) -> dict[str, str]:
        """Return what the driver would show to a REST interface; see `Authentication.headers`."""
        return dict(self._ask()["headers"])

    def _ask(self) -> dict[str, Any]:
        try:
            with socket.create_connection(self._address, _ASK_S) as connection:
                connection.sendall(self._key)
                connection.settimeout(ANSWER_S)
                answer = json.loads(_received(connection, _ANSWER_BYTES_MAX))
        except (OSError, ValueError) as error:
            host, port = self._address
            raise ConnectionLost(
                f"the driver at {host}:{port} does not tell what to show ({error or type(error).__name__}); does it"
                " still run, and do executors reach it?"
            ) from error
        if "error" in answer:
            raise CredentialsUnavailable(f"in the driver: {answer['error']}")
        return dict(answer)


def _received(connection: socket.socket, bytes_max: int) -> bytes:
    """Return what comes until the other side ends or ``bytes_max`` are there."""
    received = b""
    while len(received) < bytes_max and (data := connection.recv(bytes_max - len(received))):
        received += data
    return received
