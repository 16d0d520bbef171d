"""A client's introduction to brokers: its version, credentials and TLS settings.

Files are read and other servers are called on threads, without blocking the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from google.protobuf.message import Message

from ...errors import ConnectionLost, MagnetarError, OperationTimeout
from ...security.client_credentials import ClientCredentials
from ...tasks import TaskSet, awaited_elsewhere
from ...wire.commands import PROTOCOL_VERSION
from ...wire.pulsar_api_pb2 import AuthData, CommandAuthResponse

log = logging.getLogger(__name__)

TLS_SHUTDOWN_S = 2.0
"""Timeout for the TLS shutdown when closing."""

_T = TypeVar("_T")


class Introduction:
    """The introduction shared by all connections of a client.

    Attributes:
        client_version: version string, shown by brokers.
        method: Pulsar's name of the authentication method, or ``none``.
        is_tls: whether connections use TLS.
    """

    def __init__(self, client_version: str, credentials: ClientCredentials, is_tls: bool, timeout_s: float) -> None:
        """Create an introduction; nothing is read yet.

        Args:
            client_version: version string, shown by brokers.
            credentials: the client's credentials.
            is_tls: whether connections use TLS.
            timeout_s: timeout for reading or fetching the credentials.
        """
        self.client_version = client_version
        self.method = credentials.method
        self._credentials = credentials
        self.is_tls = is_tls
        self._timeout_s = timeout_s
        self._tasks = TaskSet("credentials")

    async def data(self) -> bytes:
        """Return the credentials for CONNECT.

        Cancellation: safe; a thread may continue reading.

        Raises:
            MagnetarError: no credentials are available; the message contains the reason.
        """
        if self._credentials.authentication is None:
            return b""
        return await self._soon(self._credentials.data, f"{self._credentials.authentication} returned no credentials")

    async def tls(self) -> dict[str, Any]:
        """Return the TLS arguments for ``create_connection``; empty without TLS.

        Cancellation: safe.

        Raises:
            CredentialsUnavailable: a certificate file cannot be read.
        """
        if not self.is_tls:
            return {}
        context = await self._soon(self._credentials.context, "certificate files could not be read")
        return {"ssl": context, "ssl_shutdown_timeout": TLS_SHUTDOWN_S}

    async def _soon(self, ask: Callable[[], _T], failure: str) -> _T:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.to_thread(ask)
        except TimeoutError as error:
            raise OperationTimeout(f"{failure} within {self._timeout_s} s") from error

    def answer(self, send: Callable[[Message], None], close: Callable[[MagnetarError], None]) -> None:
        """Answer the broker's authentication challenge in a background task; do nothing without credentials.

        Args:
            send: called with the answer.
            close: called with the reason when no credentials are available; closes the connection.
        """
        if self._credentials.authentication is None:
            return

        async def fetch() -> None:
            try:
                shown = await self.data()
            except MagnetarError as error:
                log.warning("cannot answer the broker's request for new credentials: %s", error)
                close(ConnectionLost(f"cannot renew the credentials: {error}"))
                return
            response = AuthData(auth_method_name=self.method, auth_data=shown)
            send(
                CommandAuthResponse(
                    client_version=self.client_version, response=response, protocol_version=PROTOCOL_VERSION
                )
            )

        self._tasks.start(fetch(), "answer a challenge", awaited_elsewhere)

    def hint(self) -> str:
        """Return the remedy for a rejected client, to append to an error."""
        if self._credentials.authentication is None:
            return "; it requires authentication: pass credentials to the client, for example AuthenticationToken(…)"
        if self.method == "tls":
            return " (method tls): the certificate must be issued by an authority that the server trusts"
        return f" (method {self.method}): the credentials may have expired or belong to another cluster"

    def early_end_hint(self) -> str:
        """Return the likely cause of a connection closed before a response, to append to an error."""
        if not self.is_tls or self._credentials.has_certificate:
            return ""
        # With TLS 1.3 a server checks the client's certificate last, and some then close without giving a reason.
        return " before it answered; it may require a client certificate (tls_certificate_file)"

    async def close(self) -> None:
        """Cancel pending answers to challenges.

        Cancellation: safe.
        """
        await self._tasks.close()
