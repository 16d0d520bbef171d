"""A client's connections, at most one per broker."""

from __future__ import annotations

import asyncio
import ssl

from ...errors import ClosedError, ConnectionLost, OperationTimeout
from ...security.tls_failure import tls_failure
from ...tasks.supervised import TaskSet, awaited_elsewhere
from .config import ClientConfig
from .connection import Connection, Rename
from .foreign import other_kind
from .introduction import Introduction
from .service_url import Address, HostPort


class ConnectionPool:
    """Opens connections on demand and shares them.

    Invariant: each address has at most one connection or connection attempt.
    """

    def __init__(self, introduction: Introduction, config: ClientConfig, rename: Rename | None = None):
        self._introduction = introduction
        self._rename = rename
        self._config = config
        self._open: dict[Address, Connection] = {}
        self._opening: dict[Address, asyncio.Task[Connection]] = {}
        self._tasks = TaskSet("connections")
        self._closed: dict[Connection, asyncio.Event] = {}
        self._examined: set[HostPort] = set()  # servers already diagnosed, successfully or not
        self._is_closed = False

    async def connection(self, address: Address) -> Connection:
        """Return an open connection to a broker.

        Cancellation: safe; a connection attempt in progress continues for other callers.

        Raises:
            ConnectionLost: no broker responds, or the connection was lost during the handshake.
            OperationTimeout: the handshake exceeded ``connection_timeout_s``.
            BrokerError: the broker rejected the client.
            TlsFailed: one side rejected the other's certificate, or the server does not speak TLS.
            ForeignProtocol: the peer is not a broker.
            CredentialsUnavailable: the credentials cannot be read or fetched.
        """
        if self._is_closed:
            raise ClosedError("the client is closed")
        connection = self._open.get(address)
        if connection is not None and connection.is_open:
            return connection
        task = self._opening.get(address)
        if task is None:
            # Waiting callers receive the failure; without any, it is not logged.
            task = self._tasks.start(self._examined_connect(address), f"connect {address.physical}", awaited_elsewhere)
            self._opening[address] = task
            task.add_done_callback(lambda done: self._opened(address, done))
        return await asyncio.shield(task)

    def _opened(self, address: Address, task: asyncio.Task[Connection]) -> None:
        if self._opening.get(address) is task:
            del self._opening[address]

    async def _examined_connect(self, address: Address) -> Connection:
        """Connect; if this fails, check whether the port speaks another protocol."""
        where = address.physical
        try:
            connection = await self._connect(address)
        except ConnectionLost:
            if where not in self._examined:
                self._examined.add(where)
                wrong = await other_kind(where, is_tls=self._introduction.is_tls)
                if wrong is not None:
                    raise wrong from None
            raise
        self._examined.add(where)
        return connection

    async def _connect(self, address: Address) -> Connection:
        host, port = address.physical
        loop = asyncio.get_running_loop()
        shown = await self._introduction.data()
        tls = await self._introduction.tls()
        connection = Connection(address, self._introduction, self._config, self._forget, self._rename)
        protocol: asyncio.BaseProtocol = connection
        if tls:
            from ...security.tls_reception import TlsReception

            protocol = TlsReception(connection)
        try:
            async with asyncio.timeout(self._config.connection_timeout_s):
                await loop.create_connection(lambda: protocol, host, port, **tls)
                if connection.is_open:
                    self._closed[connection] = asyncio.Event()
                await connection.handshake(shown)
        except TimeoutError as error:
            late = OperationTimeout(
                f"handshake with {address.physical} timed out after {self._config.connection_timeout_s:g} s"
            )
            connection.close(late)
            raise late from error
        except OSError as error:
            if tls and (failure := tls_failure(str(address.physical), error)):
                raise failure from error
            if tls and isinstance(error, ConnectionResetError | ssl.SSLError):
                why = "the connection was closed during the TLS handshake; check that this is a TLS port"
            else:
                why = error.strerror or str(error) or type(error).__name__
            raise ConnectionLost(f"cannot connect to {address.physical}: {why}") from error
        except asyncio.CancelledError:
            connection.close(ConnectionLost("the client was closed while connecting"))
            raise
        self._open[address] = connection
        return connection

    def _forget(self, connection: Connection) -> None:
        if self._open.get(connection.address) is connection:
            del self._open[connection.address]
        closed = self._closed.pop(connection, None)
        if closed is not None:
            closed.set()

    async def close(self) -> None:
        """Close all connections and wait until their sockets are closed.

        Cancellation: the sockets are closed nevertheless.
        """
        self._is_closed = True
        await self._introduction.close()
        await self._tasks.close()
        closing = list(self._closed.items())
        for connection, _ in closing:
            connection.close()
        for _, closed in closing:
            await closed.wait()
