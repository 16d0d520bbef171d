"""Requests to other workers about their instances; an unresponsive worker does not delay the others.

A round reads the list of workers once. It sends requests to all workers concurrently, with a limit per worker. A worker
that does not answer a request receives no further ones in that round, so a round takes no longer than the timeout of a
single request.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import httpx

from ...errors import MagnetarError, RequestRefused
from ...membership.manager import MembershipManager, Roster
from ...web.async_client import request
from ...web.client import Answer
from ...wire.printable import one_line

ANSWER_TIMEOUT_S = 1.5
"""Timeout in seconds for a request about one instance, which usually takes a few milliseconds."""

_AT_ONCE = 8
"""Maximum concurrent requests to one worker, so that an unresponsive worker leaves connections for the others."""

Json = dict[str, Any]


@dataclass
class _Peer:
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))
    failure: str = ""


class Round:
    """Requests to other workers on behalf of one client request."""

    def __init__(self, membership: MembershipManager, http: httpx.AsyncClient) -> None:
        self._membership = membership
        self._http = http
        self._peers: dict[str, _Peer] = {}
        self._roster: Roster | None = None
        self._looking = asyncio.Lock()

    async def ask(self, worker_id: str, method: str, path: str, timeout_s: float = ANSWER_TIMEOUT_S) -> Json:
        """Send a request to a worker and return its response.

        Raises:
            RequestRefused: the worker did not answer or rejected the request; the message names the worker and the
                reason.
        """
        peer = self._peers.setdefault(worker_id, _Peer())
        async with peer.turns:
            if peer.failure:
                raise RequestRefused(503, peer.failure)
            try:
                async with asyncio.timeout(timeout_s):
                    answer = await self._send(worker_id, method, path, timeout_s)
            except (MagnetarError, TimeoutError) as exc:
                reason = f"no response within {timeout_s:g} s" if isinstance(exc, TimeoutError) else one_line(str(exc))
                peer.failure = f"worker {worker_id} did not answer: {reason}"
                raise RequestRefused(503, peer.failure) from exc
        if not answer.is_success:
            raise RequestRefused(answer.status, f"worker {worker_id} rejected the request: {answer.reason}")
        content = answer.json()
        return content if isinstance(content, dict) else {}

    async def _send(self, worker_id: str, method: str, path: str, timeout_s: float) -> Answer:
        async with self._looking:
            if self._roster is None:
                self._roster = await self._membership.roster()
        member = self._roster.member(worker_id)
        if member is None:
            raise RequestRefused(503, "it is not a member of the cluster")
        return await request(
            self._http, method, f"{self._membership.url_of(member)}{path}", timeout=httpx.Timeout(timeout_s)
        )
