"""Whether anything listens at a broker's address, found out before a client keeps trying for longer."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from .failure import Failure

if TYPE_CHECKING:
    from ..client.connections.service_url import HostPort

REACH_TIMEOUT_S = 1.5
"""For a connection to any of the hosts; a command without a broker ends within two seconds."""


async def check_reachable(service_url: str, flag: str = "--service-url") -> None:
    """Return once one host of a broker's address takes a connection; nothing is said on it.

    Args:
        service_url: ``pulsar://host[:port][,…]`` or ``pulsar+ssl://…``.
        flag: which sets that address.

    Cancellation: safe.

    Raises:
        Failure: none does in time; names the remedy.
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
    raise Failure(f"cannot reach {service_url}: start one with `magnetar standalone` or give {flag} ({reason})")


async def _reason_against(place: HostPort) -> str:
    """Return why there is no connection to a host; empty if there is."""
    try:
        async with asyncio.timeout(REACH_TIMEOUT_S):
            _, writer = await asyncio.open_connection(*place)
    except TimeoutError:
        return f"no connection to {place} within {REACH_TIMEOUT_S:g} s"
    except OSError as error:
        return f"cannot connect to {place}: {error.strerror or error}"
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return ""
