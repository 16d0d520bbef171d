"""`/admin/v2/worker` and `/admin/v2/worker-stats`: workers, leader, assignments, drains, statistics."""

from __future__ import annotations

import asyncio
import resource
import threading
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from starlette.responses import PlainTextResponse, RedirectResponse, Response

from ...errors import NotLeader, RequestRefused
from ...membership.manager import Member, MembershipManager
from ...scheduler.manager import SchedulerManager
from ...web.answers import as_json, done
from ...web.call import Query, takes
from ..cluster.hand_over import NO_LEADER
from ..cluster.leadership import Leadership
from ..cluster.scheduling import Scheduling
from ..functions.definitions import KINDS, connector_definitions
from ..functions.instances import Instances
from .app import WorkerCall, WorkerRoutes

_WORKER = "/admin/v2/worker"
_LEADER_DRAIN = f"{_WORKER}/leader/drain"
_WORKER_ID = Query("workerId", str, "")


@dataclass(frozen=True, slots=True)
class ClusterRoutes:
    """Handlers of one worker."""

    membership: MembershipManager
    leadership: Leadership
    scheduling: Scheduling
    scheduler: SchedulerManager
    instances: Instances

    def routes(self) -> WorkerRoutes:
        """Return the routes."""
        return (
            ("GET", f"{_WORKER}/cluster", self.cluster),
            ("GET", f"{_WORKER}/cluster/leader", self.leader),
            ("GET", f"{_WORKER}/cluster/leader/ready", self.leader_ready),
            ("GET", f"{_WORKER}/assignments", self.assignments),
            ("GET", f"{_WORKER}/connectors", self.connectors),
            ("PUT", f"{_WORKER}/rebalance", self.rebalance),
            ("PUT", f"{_WORKER}/drain", self.drain),
            ("PUT", _LEADER_DRAIN, self.leader_drain),
            ("GET", f"{_WORKER}/drain", self.drain),
            ("GET", _LEADER_DRAIN, self.leader_drain),
            ("GET", "/admin/v2/worker-stats/metrics", self.process_metrics),
            ("GET", "/admin/v2/worker-stats/functionsmetrics", self.function_metrics),
        )

    async def cluster(self, _: WorkerCall) -> Response:
        """Return all workers."""
        return as_json([_info(member) for member in (await self.membership.roster()).members])

    async def leader(self, _: WorkerCall) -> Response:
        """Return the leader."""
        return as_json(_info(await self._leader()))

    async def _leader(self) -> Member:
        leader = (await self.membership.roster()).leader
        if leader is None:
            raise RequestRefused(500, "Leader cannot be determined")
        return leader

    async def leader_ready(self, _: WorkerCall) -> Response:
        """Return true on the leader once it accepts requests."""
        if not self.leadership.is_leading:
            raise RequestRefused(503, NO_LEADER)
        return PlainTextResponse("true")

    async def assignments(self, _: WorkerCall) -> Response:
        """Return the instances of every worker."""
        found: dict[str, list[str]] = {}
        for key, held in sorted(self.scheduler.assignments().items()):
            found.setdefault(held.workerId, []).append(str(key))
        return as_json(found)

    async def connectors(self, _: WorkerCall) -> Response:
        """Return the installed connectors."""
        return as_json(await asyncio.to_thread(connector_definitions, *KINDS))

    async def rebalance(self, call: WorkerCall) -> Response:
        """Rebalance the instances; other workers redirect to the leader."""
        elsewhere = await self._elsewhere(call, f"{_WORKER}/rebalance")
        if elsewhere is not None:
            return elsewhere
        await self.scheduling.rebalance()
        return done()

    async def drain(self, call: WorkerCall) -> Response:
        """Drain this worker (PUT) or return the progress (GET)."""
        return await self._drain(call, self.membership.me.worker_id)

    @takes(_WORKER_ID)
    async def leader_drain(self, call: WorkerCall) -> Response:
        """Drain a worker, by default this one (PUT), or return the progress of the drain (GET)."""
        return await self._drain(call, _WORKER_ID.of(call) or self.membership.me.worker_id)

    async def _drain(self, call: WorkerCall, worker_id: str) -> Response:
        elsewhere = await self._elsewhere(call, f"{_LEADER_DRAIN}?{urlencode({'workerId': worker_id})}")
        if elsewhere is not None:
            return elsewhere
        if call.request.method == "GET":
            return as_json(await self.scheduling.drain_status(worker_id))
        try:
            await self.scheduling.drain(worker_id)
        except NotLeader as exc:
            raise RequestRefused(503, f"{NO_LEADER}: {exc}") from exc
        return done()

    async def _elsewhere(self, call: WorkerCall, path: str) -> Response | None:
        """Return a redirect to the leader, with TLS if the request used it, or None if this worker is the leader."""
        if self.leadership.is_leading:
            return None
        leader = await self._leader()
        if leader == self.membership.me:
            raise RequestRefused(503, NO_LEADER)
        url = leader.url_for(by_tls=call.request.url.scheme == "https")
        return RedirectResponse(f"{url}{path}", 307)

    async def process_metrics(self, _: WorkerCall) -> Response:
        """Return CPU time, memory and threads of this process."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        metrics: dict[str, Any] = {
            "process_user_cpu_seconds": usage.ru_utime,
            "process_system_cpu_seconds": usage.ru_stime,
            "process_resident_memory_max_bytes": usage.ru_maxrss * 1024,
            "process_thread_count": threading.active_count(),
        }
        return as_json([{"metrics": metrics, "dimensions": {"metric": "process_metrics"}}])

    async def function_metrics(self, _: WorkerCall) -> Response:
        """Return the statistics of every instance on this worker."""
        return as_json(await self.instances.own_stats())


def _info(member: Member) -> dict[str, Any]:
    return {"workerId": member.worker_id, "workerHostname": member.host, "port": member.port}
