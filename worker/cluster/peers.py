"""Asking other workers about their instances, so that one that does not answer delays nobody.

A round of questions looks once who is there. It asks each worker a few questions at a time, all workers at once; a
worker that leaves one unanswered is asked nothing more in that round, so a round takes no longer than one answer may.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import httpx

from ...errors import MagnetarError, RequestRefused
from ...membership.manager import MembershipManager
from ...membership.roster import Roster

ANSWER_TIMEOUT_S = 1.5
"""How long a worker may take to tell about one instance; it takes a few milliseconds."""

_AT_ONCE = 8
"""Questions to one worker: those to a silent one must leave connections for the others."""

_REASON_CHARACTERS = 500

Json = dict[str, Any]


@dataclass
class _Peer:
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))
    failure: str = ""


class Round:
    """The questions of one request."""

    def __init__(self, membership: MembershipManager, http: httpx.AsyncClient) -> None:
        self._membership = membership
        self._http = http
        self._peers: dict[str, _Peer] = {}
        self._roster: Roster | None = None
        self._looking = asyncio.Lock()

    async def ask(self, worker_id: str, method: str, path: str, timeout_s: float = ANSWER_TIMEOUT_S) -> Json:
        """Return a worker's answer to a request.

        Raises:
            RequestRefused: it does not answer, or refuses; says which worker, and why.
        """
        peer = self._peers.setdefault(worker_id, _Peer())
        async with peer.turns:
            if peer.failure:
                raise RequestRefused(503, peer.failure)
            try:
                async with asyncio.timeout(timeout_s):
                    response = await self._send(worker_id, method, path, timeout_s)
            except (MagnetarError, httpx.HTTPError, httpx.InvalidURL, TimeoutError) as exc:
                reason = f"nothing within {timeout_s:g} s" if isinstance(exc, TimeoutError) else _reason(exc)
                peer.failure = f"worker {worker_id} does not answer: {reason}"
                raise RequestRefused(503, peer.failure) from exc
        if not response.is_success:
            raise RequestRefused(response.status_code, f"worker {worker_id} refuses: {_told(response)}")
        answer = response.json() if response.content else {}
        return answer if isinstance(answer, dict) else {}

    async def _send(self, worker_id: str, method: str, path: str, timeout_s: float) -> httpx.Response:
        async with self._looking:
            if self._roster is None:
                self._roster = await self._membership.roster()
        member = self._roster.member(worker_id)
        if member is None:
            raise RequestRefused(503, "it is not there")
        return await self._http.request(method, f"{member.url}{path}", timeout=timeout_s)


def _told(response: httpx.Response) -> str:
    """Return what an answer that is an error says."""
    try:
        reason = response.json()["reason"]
    except (ValueError, LookupError, TypeError):
        reason = response.text
    return str(reason)[:_REASON_CHARACTERS]


def _reason(exc: Exception) -> str:
    return " ".join(str(exc).split()) or type(exc).__name__
