"""`/admin/v2/worker` and `/admin/v2/worker-stats`: who is there, who leads, who runs what."""

from __future__ import annotations

import resource
import threading
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from ...errors import NotLeader, RequestRefused
from ...membership.manager import MembershipManager
from ...membership.roster import Member
from ...scheduler.manager import SchedulerManager
from ..cluster.hand_over import NO_LEADER
from ..cluster.leadership import Leadership
from ..functions.instances import Instances
from .answers import finite, nothing

_LEADER_DRAIN = "/admin/v2/worker/leader/drain"


class ClusterRoutes:
    """The handlers; made once per worker."""

    def __init__(
        self,
        membership: MembershipManager,
        leadership: Leadership,
        scheduler: SchedulerManager,
        instances: Instances,
    ) -> None:
        self._membership = membership
        self._leadership = leadership
        self._scheduler = scheduler
        self._instances = instances

    def router(self) -> APIRouter:
        """Return the routes."""
        router = APIRouter(prefix="/admin/v2", tags=["worker"])
        for method, path, handler in (
            ("GET", "/worker/cluster", self.cluster),
            ("GET", "/worker/cluster/leader", self.leader),
            ("GET", "/worker/cluster/leader/ready", self.leader_ready),
            ("GET", "/worker/assignments", self.assignments),
            ("GET", "/worker/connectors", self.connectors),
            ("PUT", "/worker/rebalance", self.rebalance),
            ("PUT", "/worker/drain", self.drain),
            ("PUT", "/worker/leader/drain", self.leader_drain),
            ("GET", "/worker/drain", self.drain),
            ("GET", "/worker/leader/drain", self.leader_drain),
            ("GET", "/worker-stats/metrics", self.process_metrics),
            ("GET", "/worker-stats/functionsmetrics", self.function_metrics),
        ):
            router.add_api_route(path, handler, methods=[method], response_model=None)
        return router

    async def cluster(self) -> Response:
        """Return all workers."""
        return JSONResponse([_info(member) for member in (await self._membership.roster()).members])

    async def leader(self) -> Response:
        """Return the worker that leads."""
        leader = (await self._membership.roster()).leader
        if leader is None:
            raise RequestRefused(500, "Leader cannot be determined")
        return JSONResponse(_info(leader))

    async def leader_ready(self) -> Response:
        """Return true on the leader once it decides."""
        if not self._leadership.is_leading:
            raise RequestRefused(503, NO_LEADER)
        return PlainTextResponse("true")

    async def assignments(self) -> Response:
        """Return the instances of every worker."""
        found: dict[str, list[str]] = {}
        for key, held in sorted(self._scheduler.assignments().items()):
            found.setdefault(held.workerId, []).append(str(key))
        return JSONResponse(found)

    async def connectors(self) -> Response:
        """Return the built-in connectors: none yet."""
        return JSONResponse([])

    async def rebalance(self) -> Response:
        """Even the load out; sends to the leader who asks another worker."""
        elsewhere = await self._elsewhere("/admin/v2/worker/rebalance")
        if elsewhere is not None:
            return elsewhere
        await self._leadership.rebalance(self._membership)
        return nothing()

    async def drain(self, request: Request) -> Response:
        """Empty this worker, or say how far that is."""
        return await self._drain(request.method, self._membership.me.worker_id)

    # The parameter has Pulsar's name.
    async def leader_drain(self, request: Request, workerId: str = "") -> Response:
        """Empty a worker, by default this one, or say how far that is."""
        return await self._drain(request.method, workerId or self._membership.me.worker_id)

    async def _drain(self, method: str, worker_id: str) -> Response:
        elsewhere = await self._elsewhere(f"{_LEADER_DRAIN}?{urlencode({'workerId': worker_id})}")
        if elsewhere is not None:
            return elsewhere
        if method == "GET":
            return JSONResponse(await self._leadership.drain_status(self._membership, worker_id))
        try:
            await self._leadership.drain(self._membership, worker_id)
        except NotLeader as exc:
            raise RequestRefused(503, f"{NO_LEADER}: {exc}") from exc
        return nothing()

    async def _elsewhere(self, path: str) -> Response | None:
        """Return the way to the leader, None if this worker leads."""
        if self._leadership.is_leading:
            return None
        leader = (await self._membership.roster()).leader
        if leader is None:
            raise RequestRefused(500, "Leader cannot be determined")
        if leader == self._membership.me:
            raise RequestRefused(503, NO_LEADER)
        return RedirectResponse(f"{leader.url}{path}", 307)

    async def process_metrics(self) -> Response:
        """Return what this process uses."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        metrics: dict[str, Any] = {
            "process_user_cpu_seconds": usage.ru_utime,
            "process_system_cpu_seconds": usage.ru_stime,
            "process_resident_memory_max_bytes": usage.ru_maxrss * 1024,
            "process_thread_count": threading.active_count(),
        }
        return JSONResponse([{"metrics": metrics, "dimensions": {"metric": "process_metrics"}}])

    async def function_metrics(self) -> Response:
        """Return the counts of every instance on this worker."""
        return JSONResponse(finite(await self._instances.own_stats()))


def _info(member: Member) -> dict[str, Any]:
    return {"workerId": member.worker_id, "workerHostname": member.host, "port": member.port}
