"""Credentials for tasks on other machines, which request them from the driver on demand.

Design: a function's token is a file on its worker's machine that is renewed periodically, and a run may outlive a
token. Tasks therefore do not receive the token but the means to request it: the address of a socket of the driver, and
a key that authenticates their requests. They request the token for every connection and whenever a broker sends a
challenge, so they always use the driver's current token. The key is sent only to the executors, together with the
function's code, and grants the function's permissions while the driver runs. Requests fail once the driver has ended,
but so do its tasks.

Neither the key nor the token is sent in plaintext: a task sends random bytes and their HMAC, and the response is
encrypted with AES-GCM and bound to these bytes, which prevents replays. The token is therefore as secret as the
function's code, whose transfer can be encrypted in Spark's settings.

Client certificates are not supported: their files must exist on the machines that run the tasks.
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
"""Time limit for the driver's response; the driver may have to query a server itself."""
_CONNECT_S = 5.0
_THREADS = 8
_WAITING_MAX = 512
"""Maximum number of waiting requests; further requests are dropped, and the tasks retry."""
_HALF_BYTES = 32
_RANDOM_BYTES = 16
_QUESTION_BYTES = _RANDOM_BYTES + hashlib.sha256().digest_size
_IV_BYTES = 12
_ANSWER_BYTES_MAX = 4 * SECRET_BYTES_MAX
_log = logging.getLogger(__name__)


class _Key(NamedTuple):
    """Key shared by the driver and its tasks: one half for requests, one for responses."""

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
        """Return a task's request, signed with the key."""
        return random + hmac.digest(self.asking, random, "sha256")

    def cipher(self) -> AESGCM:
        """Return the cipher for responses."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # needed only on clusters

        return AESGCM(self.sealing)


class CredentialsServer:
    """Serves the driver's credentials to the tasks of one function.

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
        """Answer a request on a thread if its signature is valid and a thread is available."""
        random = question[:_RANDOM_BYTES]
        if not hmac.compare_digest(question, self._key.question(random)) or not self._waiting.acquire(blocking=False):
            connection.close()
            return
        try:
            self._answering.submit(self._answer, connection, random, time.monotonic() + ANSWER_S)
        except RuntimeError:  # closed
            connection.close()

    def _answer(self, connection: socket.socket, random: bytes, deadline: float) -> None:
        """Send the response unless the task has stopped waiting or the driver is stopping; close the connection."""
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
            _log.warning("cannot provide credentials to tasks: %s", error)
            return {"error": str(error)}

    def close(self) -> None:
        """Stop answering requests."""
        self._questions.close()
        self._is_closed = True
        self._answering.shutdown(wait=False)  # not cancelled, because each task must close its connection


class DriverAuthentication(Authentication):
    """Authentication plugin for tasks, which presents the driver's current credentials."""

    def __init__(self, params: str) -> None:
        """Create the plugin without requesting credentials.

        Args:
            params: parameters from `CredentialsServer.security`.

        Raises:
            InvalidConfig: the params are invalid.
        """
        try:
            where = json.loads(params)
            self.method = str(where["method"])
            self._address, self._key = (str(where["host"]), int(where["port"])), _Key.of(str(where["key"]))
        except (ValueError, KeyError, TypeError):
            raise InvalidConfig(
                "this plugin is only for tasks of Spark functions, whose driver supplies its parameters"
            ) from None

    def data(self) -> bytes:
        """Same as `Authentication.data`, with the driver's credentials."""
        return b64decode(self._ask()["data"])

    def headers(self) -> dict[str, str]:
        """Same as `Authentication.headers`, with the driver's credentials."""
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
            raise CredentialsUnavailable(f"error in the driver: {answer['error']}")
        return answer

    def _opened(self, sealed: bytes, random: bytes) -> dict[str, Any]:
        from cryptography.exceptions import InvalidTag

        try:
            return dict(json.loads(self._key.cipher().decrypt(sealed[:_IV_BYTES], sealed[_IV_BYTES:], random)))
        except (InvalidTag, ValueError) as error:
            raise self._lost(
                "the response does not match the request" if sealed else "the driver closed the connection"
            ) from error

    def _lost(self, why: object) -> ConnectionLost:
        host, port = self._address
        return ConnectionLost(
            f"the driver at {host}:{port} did not return credentials ({why}); is it still running and "
            "reachable from the executors?"
        )


def _received(connection: socket.socket, bytes_max: int, timeout_s: float) -> bytes:
    """Read until the peer closes the connection or ``bytes_max`` bytes have arrived. Raises TimeoutError, OSError."""
    deadline = time.monotonic() + timeout_s
    received = b""
    while len(received) < bytes_max:
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        if not (data := connection.recv(bytes_max - len(received))):
            break
        received += data
    return received
