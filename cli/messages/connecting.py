"""The client of commands that send and receive messages, and the errors that they share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ...errors import ConnectionLost
from ..failure import Failure

if TYPE_CHECKING:
    from ...client.client import AsyncClient

OPERATION_TIMEOUT_S = 5.0
"""Of an interactive command."""


@asynccontextmanager
async def connected(service_url: str) -> AsyncIterator[AsyncClient]:
    """Give a client of the broker at ``service_url``.

    Raises:
        Failure: the broker cannot be reached.

    Cancellation: closes the client.
    """
    from ...client.client import AsyncClient
    from ...client.config import ClientConfig

    try:
        async with AsyncClient(service_url, ClientConfig(operation_timeout_s=OPERATION_TIMEOUT_S)) as client:
            yield client
    except ConnectionLost as error:
        raise Failure(
            f"cannot reach {service_url}: start one with `magnetar standalone` or give --service-url ({error})"
        ) from error
