"""`/admin/v2/worker` and `/admin/v2/worker-stats`: who is there, who leads, who runs what."""

from __future__ import annotations

import resource
import threading
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from ...errors import RequestRefused
from ...membership.manager import MembershipManager
from ...membership.roster import Member
from ...metadata.functions import FunctionMetadataManager
from ...scheduler.manager import SchedulerManager
from ..instances import Instances
from .answers import finite

_TOO_FEW = "Too few workers (need at least 2)"


class ClusterRoutes:
    """The handlers; made once per worker."""

    def __init__(
        self,
        membership: MembershipManager,
        metadata: FunctionMetadataManager,
        scheduler: SchedulerManager,
        instances: Instances,
    ) -> None:
        self._membership = membership
        self._metadata = metadata
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
            ("PUT", "/worker/rebalance", self.move),
            ("PUT", "/worker/drain", self.move),
            ("PUT", "/worker/leader/drain", self.move),
            ("GET", "/worker/drain", self.drain_status),
            ("GET", "/worker/leader/drain", self.drain_status),
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
        if not self._metadata.is_leading:
            raise RequestRefused(503, "Leader not yet ready. Please retry again")
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

    async def move(self) -> Response:
        """Rebalancing and draining come with several workers."""
        if len((await self._membership.roster()).members) < 2:
            raise RequestRefused(400, _TOO_FEW)
        raise RequestRefused(501, "rebalance and drain are not supported yet; stop a worker to move its instances")

    async def drain_status(self) -> Response:
        """No drain was ever started."""
        return JSONResponse({"status": "NOT_RUN", "lastError": ""})

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
