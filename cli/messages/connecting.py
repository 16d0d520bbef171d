"""Client for commands that send and receive messages, with their common errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ...errors import AuthenticationError, ConnectionLost
from ..failure import Failure
from ..reach import HANDSHAKE_TIMEOUT_S, check_reachable, connect
from ..settings import Settings

if TYPE_CHECKING:
    from ...client.client import AsyncClient

OPERATION_TIMEOUT_S = 5.0
"""Operation timeout of interactive commands, in seconds."""
CONNECT_WITHIN_S = 1.0
"""How long interactive commands try to connect to a broker, in seconds."""


@asynccontextmanager
async def connected(settings: Settings) -> AsyncIterator[AsyncClient]:
    """Provide a connected client.

    Raises:
        Failure: the broker cannot be reached, or rejects the client.

    Cancellation: closes the client.
    """
    from ...client.client import AsyncClient

    config = settings.client_config(operation_timeout_s=OPERATION_TIMEOUT_S, connection_timeout_s=HANDSHAKE_TIMEOUT_S)
    service_url = settings.service_url
    await check_reachable(service_url)
    try:
        async with AsyncClient(service_url, config, admin_url=settings.admin_url) as client:
            await connect(client, service_url, within_s=CONNECT_WITHIN_S)
            yield client
    except AuthenticationError as error:
        if settings.credentials.authentication is not None:
            raise
        raise Failure(f"{service_url} requires authentication: use --auth-plugin and --auth-params") from error
    except ConnectionLost as error:
        raise Failure(
            f"cannot reach {service_url}: start a server with `magnetar standalone` or use --service-url ({error})"
        ) from error
