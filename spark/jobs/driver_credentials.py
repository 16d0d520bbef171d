"""Credentials for a function's tasks on other machines: tasks request them from the driver whenever they need them.

Design: a function's token is a file on its worker's machine that is renewed periodically, and a run may take longer
than a token is valid. So tasks get, instead of the token, the means to request it: the address of a socket of the
driver, and a key without which the driver does not answer. They request it at every connection and whenever a broker
sends a challenge, so they always use the driver's current token. The key goes to the executors with the function's code
and nowhere else; it grants the function's rights as long as the driver runs. When the driver has ended, requests fail,
but its tasks end with it, too.

Neither key nor token crosses the network in the clear: the task sends random bytes and their HMAC, and the answer is
sealed with AES-GCM and bound to these bytes, so that old answers cannot be replayed. So this is as secret as Spark's
channel for code, which can be encrypted in Spark's settings.

A client certificate cannot be passed on this way: its files have to exist where the tasks run.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import logging
import secrets
import socket
import threading
import time
from base64 import b64decode, b64encode
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import ConnectionLost, CredentialsUnavailable, InvalidConfig, MagnetarError
from ...security.client_credentials import ClientCredentials
from ...security.credentials.authentication import Authentication
from ...security.credentials.secret_file import SECRET_BYTES_MAX
from .credential_questions import Questions

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

ANSWER_S = 30.0
"""Time limit of a driver, which may have to query a server itself."""
_CONNECT_S = 5.0
_THREADS = 8
_WAITING_MAX = 512
"""Maximum concurrent tasks; requests of others are dropped, and retried."""
_HALF_BYTES = 32
_RANDOM_BYTES = 16
_QUESTION_BYTES = _RANDOM_BYTES + hashlib.sha256().digest_size
_IV_BYTES = 12
_ANSWER_BYTES_MAX = 4 * SECRET_BYTES_MAX
_log = logging.getLogger(__name__)


class _Key(NamedTuple):
    """The key shared by driver and tasks, in two halves: for requests, and for answers."""

    asking: bytes
    sealing: bytes

    @classmethod
    def of(cls, text: str) -> _Key:
        """Parse a key. Raises ValueError."""
        both = bytes.fromhex(text)
        if len(both) != 2 * _HALF_BYTES:
            raise ValueError("no key")
        return cls(both[:_HALF_BYTES], both[_HALF_BYTES:])

    def question(self, random: bytes) -> bytes:
        """Return the request of a task that has the key."""
        return random + hmac.digest(self.asking, random, "sha256")

    def cipher(self) -> AESGCM:
        """Return the cipher for answers."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # only needed for clusters

        return AESGCM(self.sealing)


class CredentialsServer:
    """The driver's side, for one function.

    Attributes:
        security: security settings for tasks.
    """

    def __init__(self, host: str, credentials: ClientCredentials) -> None:
        """Listen on an address of this machine that executors can reach."""
        self._credentials = credentials
        key = secrets.token_hex(2 * _HALF_BYTES)
        self._key = _Key.of(key)
        self._waiting = threading.Semaphore(_WAITING_MAX)
        self._is_closed = False
        self._answering = ThreadPoolExecutor(_THREADS, "credentials of tasks")
        self._questions = Questions(host, _QUESTION_BYTES, self._take)
        where = {"method": credentials.method, "host": host, "port": self._questions.port, "key": key}
        self.security = replace(
            credentials.security,
            auth_plugin=f"{DriverAuthentication.__module__}:{DriverAuthentication.__name__}",
            auth_params=json.dumps(where),
        )

    def _take(self, connection: socket.socket, question: bytes) -> None:
        """Answer a request on a thread, if it is signed with the key and there is capacity."""
        random = question[:_RANDOM_BYTES]
        if not hmac.compare_digest(question, self._key.question(random)) or not self._waiting.acquire(blocking=False):
            connection.close()
            return
        try:
            self._answering.submit(self._answer, connection, random, time.monotonic() + ANSWER_S)
        except RuntimeError:  # closed
            connection.close()

    def _answer(self, connection: socket.socket, random: bytes, deadline: float) -> None:
        """Send the answer, unless the task has stopped waiting or the driver is ending; close the connection."""
        try:
            with contextlib.suppress(OSError), connection:
                if time.monotonic() < deadline and not self._is_closed:
                    iv = secrets.token_bytes(_IV_BYTES)
                    sealed = self._key.cipher().encrypt(iv, json.dumps(self._shown()).encode(), random)
                    connection.settimeout(_CONNECT_S)
                    connection.sendall(iv + sealed)
        finally:
            self._waiting.release()

    def _shown(self) -> dict[str, Any]:
        try:
            shown = b64encode(self._credentials.data()).decode()
            return {"data": shown, "headers": self._credentials.headers()}
        except MagnetarError as error:
            _log.warning("tasks ask for credentials, and there are none: %s", error)
            return {"error": str(error)}

    def close(self) -> None:
        """Stop answering."""
        self._questions.close()
        self._is_closed = True
        self._answering.shutdown(wait=False)  # not cancelled, because each connection must still be closed


class DriverAuthentication(Authentication):
    """The tasks' side: presents the driver's current credentials."""

    def __init__(self, params: str) -> None:
        """Prepare; nothing is requested yet.

        Args:
            params: of `CredentialsServer.security`.

        Raises:
            InvalidConfig: the params are invalid.
        """
        try:
            where = json.loads(params)
            self.method = str(where["method"])
            self._address, self._key = (str(where["host"]), int(where["port"])), _Key.of(str(where["key"]))
        except (ValueError, KeyError, TypeError):
            raise InvalidConfig("this plugin is for tasks of Spark functions, whose driver gives its params") from None

    def data(self) -> bytes:
        """Return the driver's credentials for a broker; see `Authentication.data`."""
        return b64decode(self._ask()["data"])

    def headers(self) -> dict[str, str]:
        """Return the driver's credentials for a REST interface; see `Authentication.headers`."""
        return dict(self._ask()["headers"])

    def _ask(self) -> dict[str, Any]:
        random = secrets.token_bytes(_RANDOM_BYTES)
        try:
            with socket.create_connection(self._address, _CONNECT_S) as connection:
                connection.sendall(self._key.question(random))
                sealed = _received(connection, _ANSWER_BYTES_MAX, ANSWER_S)
        except OSError as error:
            raise self._lost(str(error) or type(error).__name__) from error
        answer = self._opened(sealed, random)
        if "error" in answer:
            raise CredentialsUnavailable(f"in the driver: {answer['error']}")
        return answer

    def _opened(self, sealed: bytes, random: bytes) -> dict[str, Any]:
        from cryptography.exceptions import InvalidTag

        try:
            return dict(json.loads(self._key.cipher().decrypt(sealed[:_IV_BYTES], sealed[_IV_BYTES:], random)))
        except (InvalidTag, ValueError) as error:
            raise self._lost("its answer is not for this question" if sealed else "it ended the connection") from error

    def _lost(self, why: object) -> ConnectionLost:
        host, port = self._address
        return ConnectionLost(
            f"the driver at {host}:{port} does not tell what to show ({why}); does it still run, and do executors reach"
            " it?"
        )


def _received(connection: socket.socket, bytes_max: int, timeout_s: float) -> bytes:
    """Read until the other side closes or ``bytes_max`` have arrived. Raises TimeoutError, OSError."""
    deadline = time.monotonic() + timeout_s
    received = b""
    while len(received) < bytes_max:
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        if not (data := connection.recv(bytes_max - len(received))):
            break
        received += data
    return received
