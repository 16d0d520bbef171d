"""Quick check whether a broker responds, before a client retries for longer."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from ..errors import ConnectionLost, OperationTimeout
from .failure import Failure

if TYPE_CHECKING:
    from ..client.client import AsyncClient
    from ..client.connections.service_url import HostPort
    from ..security.credentials.client_security import ClientSecurity

REACH_TIMEOUT_S = 1.5
"""Timeout for connecting to any of the hosts, in seconds; without a broker, a command fails within two seconds."""
HANDSHAKE_TIMEOUT_S = 5.0
"""Timeout for the handshake after connecting, in seconds; long enough for a busy broker."""


async def check_reachable(service_url: str, flag: str = "--service-url") -> None:
    """Check that one of the hosts in a broker's address accepts connections, without sending anything.

    Args:
        service_url: ``pulsar://host[:port][,…]`` or ``pulsar+ssl://…``.
        flag: the flag that sets that address.

    Cancellation: safe.

    Raises:
        Failure: no host accepts a connection in time; the message contains the remedy.
    """
    from ..client.connections.service_url import parse_service_url
    from ..tasks import TaskSet, awaited_elsewhere

    hosts = parse_service_url(service_url).hosts
    reason = ""
    tries = TaskSet("connections")
    try:
        waiting = {tries.start(_reason_against(host), str(host), awaited_elsewhere) for host in hosts}
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            reason = min(task.result() for task in done)
            if not reason:
                return
    finally:
        await tries.close()
    raise _unreachable(service_url, flag, reason)


async def check_broker(service_url: str, admin_url: str, security: ClientSecurity, flag: str) -> None:
    """Check that a broker completes the handshake at one of the hosts in its address.

    Args:
        service_url: as in `check_reachable`.
        admin_url: address of the broker's REST interface, to which the TLS settings may apply.
        security: the credentials and TLS settings for the broker; settings that no URL needs are ignored.
        flag: the flag that sets `service_url`.

    Cancellation: closes the connection.

    Raises:
        Failure: no response in time; the message contains the remedy.
        MagnetarError: the address belongs to another kind of server, or the broker rejects the client.
    """
    from ..client.client import AsyncClient
    from ..client.config import ClientConfig

    await check_reachable(service_url, flag)
    used = security.for_urls(service_url, admin_url)
    config = ClientConfig(connection_timeout_s=HANDSHAKE_TIMEOUT_S, **used.to_dict())
    async with AsyncClient(service_url, config, admin_url=admin_url) as client:
        await connect(client, service_url, flag)


async def connect(client: AsyncClient, service_url: str, flag: str = "--service-url", within_s: float = 0.0) -> None:
    """Connect a client to its broker.

    Args:
        client: an unconnected client.
        service_url: its address.
        flag: the flag that sets that address.
        within_s: how long to retry, in seconds; 0 for a single attempt.

    Cancellation: safe.

    Raises:
        Failure: no response in time; the message contains the remedy.
        MagnetarError: as from `AsyncClient.connect`.
    """
    try:
        await client.connect(within_s)
    except (ConnectionLost, OperationTimeout) as error:
        raise _unreachable(service_url, flag, str(error)) from error


def _unreachable(service_url: str, flag: str, reason: str) -> Failure:
    return Failure(f"cannot reach {service_url}: start a server with `magnetar standalone` or use {flag} ({reason})")


async def _reason_against(place: HostPort) -> str:
    """Return why a host does not accept connections, or an empty string if it does."""
    try:
        async with asyncio.timeout(REACH_TIMEOUT_S):
            await _resolve(place.host)
            _, writer = await asyncio.open_connection(*place)
    except TimeoutError:
        return f"no connection to {place} within {REACH_TIMEOUT_S:g} s"
    except OSError as error:
        return f"cannot connect to {place}: {error.strerror or error}"
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return ""


async def _resolve(host: str) -> None:
    """Resolve a host name.

    This uses a daemon thread, because the event loop waits for its executor's threads on exit, and an unresponsive name
    server would block such a thread for longer than the command may take.

    Cancellation: safe.

    Raises:
        OSError: the host is unknown.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def finish(error: OSError | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def resolve() -> None:
        failed: OSError | None = None
        try:
            socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            failed = error
        except UnicodeError as error:
            failed = OSError(f"invalid host name: {error}")
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(finish, failed)

    threading.Thread(target=resolve, name=f"resolve {host}", daemon=True).start()
    await done
