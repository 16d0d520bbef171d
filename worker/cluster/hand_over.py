"""Hands requests over to the leader, locally or over REST, and follows leader changes.

All steps of a request share a `Deadline`, including the steps before the request is handed over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import TypeVar

import httpx

from ...errors import (
    ConnectionLost,
    FunctionExists,
    MagnetarError,
    NotLeader,
    OperationTimeout,
    OutOfDate,
    RequestRefused,
)
from ...membership.manager import Member, MembershipManager
from ...metadata.functions import FunctionMetadataManager, FunctionRequest, fqfn
from ...tasks import Backoff, Retry
from ...web.async_client import request as send
from ...web.client import Form, segment

REQUEST_ID_HEADER = "X-Magnetar-Request-Id"
NO_LEADER = "Leader not yet ready. Please retry again"

_PAUSE_S = 0.1
_BROKER_PAUSE_S = 0.2
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class Deadline:
    """Deadline of all steps of a request, and the last reason for a delay."""

    def __init__(self, timeout_s: float) -> None:
        """Start the deadline now."""
        self._timeout_s = timeout_s
        self._until = monotonic() + timeout_s
        self._reason = "the broker is slow"

    @property
    def remaining_s(self) -> float:
        """Remaining seconds."""
        return max(0.0, self._until - monotonic())

    @asynccontextmanager
    async def bound(self, outcome: str = "nothing was changed") -> AsyncIterator[None]:
        """Cancel the body of the context at the deadline.

        Args:
            outcome: outcome in case of a timeout, for the error message.

        Raises:
            RequestRefused: 503, with the reason for the delay.
        """
        try:
            async with asyncio.timeout(self.remaining_s):
                yield
        except TimeoutError:
            raise RequestRefused(
                503, f"{outcome} within {self._timeout_s:g} s: {self._reason}; retry the request later"
            ) from None

    async def ask(self, question: Callable[[], Awaitable[_T]]) -> _T:
        """Return the broker's answer, retrying while it is unavailable; use only within `bound`. Cancellation: safe."""
        away, pauses = (ConnectionLost, OperationTimeout), Backoff(_BROKER_PAUSE_S, _BROKER_PAUSE_S)
        return await Retry(away, pauses, on_failure=self._note).call(question)

    def _note(self, failure: Exception) -> None:
        self._reason = str(failure)
        _log.info("broker unavailable during a request; retrying: %s", failure)


@dataclass(frozen=True, slots=True)
class HandOver:
    """Sends requests to the leader, with retries until the leader decides or the timeout expires.

    Attributes:
        metadata: decides requests while this worker is the leader.
        membership: provides the current leader.
        http: client for requests to other workers.
        timeout_s: default timeout of a request.
    """

    metadata: FunctionMetadataManager
    membership: MembershipManager
    http: httpx.AsyncClient
    timeout_s: float

    async def submit(self, request: FunctionRequest, deadline: Deadline | None = None) -> None:
        """Make the leader, which may be this worker, carry out a request.

        Args:
            request: the request.
            deadline: deadline of the whole operation; None for `timeout_s` from now.

        Cancellation: the request may still be carried out; retry it with the same id.

        Raises:
            OutOfDate, FunctionExists: the leader rejected the request.
            RequestRefused: 503, no leader accepted the request before the deadline; or the error returned by the
                leader.
        """
        reason = "no worker is the leader"
        try:
            async with asyncio.timeout(self.timeout_s if deadline is None else deadline.remaining_s):
                while True:
                    try:
                        return await self._try(request)
                    except MagnetarError as exc:
                        is_refused = isinstance(exc, RequestRefused) and exc.status < 500
                        if is_refused or isinstance(exc, OutOfDate | FunctionExists):
                            raise
                        reason = str(exc) or type(exc).__name__
                        _log.info("no leader accepted a request; retrying: %s", reason)
                    await asyncio.sleep(_PAUSE_S)
        except TimeoutError:
            raise RequestRefused(503, f"{NO_LEADER}; for {self.timeout_s:g} s: {reason}") from None

    async def _try(self, request: FunctionRequest) -> None:
        if self.metadata.log.is_leading:
            return await self.metadata.submit(request)
        leader = (await self.membership.roster()).leader
        if leader is None or leader.worker_id == self.membership.me.worker_id:
            raise NotLeader("this worker is not ready to lead yet" if leader else "no worker is the leader")
        await self._send(request, leader)

    async def _send(self, request: FunctionRequest, leader: Member) -> None:
        name = fqfn(request.metadata)
        path = "/".join(map(segment, name.split("/")))
        answer = await send(
            self.http,
            "PUT",
            f"{self.membership.url_of(leader)}/admin/v3/functions/leader/{path}",
            body=Form(
                {
                    "functionMetaData": ("metadata", request.metadata.SerializeToString(), "application/octet-stream"),
                    "delete": (None, "true" if request.is_deletion else "false", "text/plain"),
                }
            ),
            headers={REQUEST_ID_HEADER: request.request_id},
        )
        if not answer.is_success:
            raise RequestRefused(answer.status, answer.reason)
        # Respond only once this worker's own table contains the change, as its next request must see it.
        try:
            await self.metadata.wait_until_seen(request)
        except OperationTimeout as exc:
            _log.warning("a change of %s made by the leader is not visible on this worker yet: %s", name, exc)
