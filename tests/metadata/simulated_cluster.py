"""Workers without instances: the real managers of metadata, schedule, membership and leadership, on any broker.

What leads, tails, hands over and decides is the real code; the network between the workers is not, and the broker
behind them need not be.
"""

from __future__ import annotations

import asyncio
import email
import email.policy
import random
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, Protocol, cast

import httpx
from magnetar.client.client import AsyncClient
from magnetar.errors import FunctionExists, MagnetarError, NotLeader, OutOfDate, RequestRefused
from magnetar.membership.manager import Member, MembershipManager, Participation
from magnetar.metadata.functions import FunctionMetadataManager, FunctionRequest
from magnetar.scheduler.manager import SchedulerManager
from magnetar.wire.functions_pb2 import FunctionMetaData
from magnetar.worker.cluster.hand_over import REQUEST_ID_HEADER, HandOver
from magnetar.worker.cluster.internal_topic import TopicLog
from magnetar.worker.cluster.leadership import Leadership
from magnetar.worker.cluster.scheduling import Scheduling
from magnetar.worker.config import WorkerConfig

from .simulated_broker import Hear, Link, Spawn

HTTP_TIMEOUT_S = 10.0
CONFIG = WorkerConfig(service_url="pulsar://nowhere:1", admin_url="http://nowhere:2", data_dir=Path("/nonexistent"))
METADATA = CONFIG.topic(CONFIG.metadata_topic)
ASSIGNMENTS = CONFIG.topic(CONFIG.assignments_topic)


class WorkerKilled(Exception):
    """The worker died during a request."""


class Connection(Protocol):
    """A worker's client, as seen by the test."""

    def kill(self) -> None:
        """Stop the client's background tasks."""


class Ground(Protocol):
    """The broker under the workers."""

    def client(self, link: Link) -> tuple[AsyncClient, Connection]:
        """Return a worker's client, and a function that kills it."""

    async def enter(self, link: Link, client: AsyncClient, hear: Hear, spawn: Spawn) -> Participation:
        """Take part in the election."""

    async def read_stats(self, link: Link) -> Mapping[str, Any]:
        """Return the statistics of the coordination topic."""

    def cut(self, link: Link) -> None:
        """Close a worker's connection."""


class SimulatedWorker:
    """One incarnation of a worker, which can be started, queried and killed."""

    leadership: Leadership
    scheduling: Scheduling
    membership: MembershipManager
    metadata: FunctionMetadataManager
    scheduler: SchedulerManager

    def __init__(self, broker: Ground, member: Member, chance: random.Random) -> None:
        self.member = member
        self.link = Link(member, chance)
        self.link.thawed.set()
        self.tasks: dict[asyncio.Task[Any], None] = {}  # in order: a story is drawn from its seed alone
        self.is_ready = asyncio.Event()
        self._broker = broker

    def __repr__(self) -> str:
        is_leading, assignments = self.metadata.log.is_leading, sorted(map(str, self.scheduler.assignments()))
        return f"{self.member.worker_id}(is_ready={self.is_ready.is_set()}, {is_leading=}, {assignments=})"

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a task that ends with this worker."""
        task = asyncio.create_task(work)
        self.tasks[task] = None
        task.add_done_callback(self.tasks.pop)
        return task

    def start(self) -> None:
        """Start the worker without waiting until it is ready."""
        self.spawn(self._start())

    async def _start(self) -> None:
        logs = (self.metadata.log, self.scheduler.log)
        for log in logs:
            self.spawn(log.run())
        for log in logs:
            while True:
                try:
                    await log.catch_up()
                    break
                except MagnetarError:  # a real worker ends at this and is started again
                    await asyncio.sleep(0.5)
        self.spawn(self.leadership.run_election(self.member.worker_id))
        self.spawn(self.scheduling.run())
        self._start_instances()
        await self.membership.start()
        self.is_ready.set()

    def _start_instances(self) -> None:
        """Follow the assignments, if the worker has instances."""

    def kill(self) -> None:
        """`kill -9`: nobody is notified; the broker sees the connections close."""
        self.link.is_dead = True
        self.link.thawed.set()
        self._close()
        for task in list(self.tasks):
            task.cancel()
        self._broker.cut(self.link)

    def _close(self) -> None:
        """Stop the client's background tasks."""

    async def ask(self, work: Coroutine[Any, Any, Any]) -> None:
        """Carry out a request, as a REST call to this worker would.

        Raises:
            WorkerKilled: no answer will come.
        """
        task = self.spawn(work)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
            raise
        if task.cancelled():
            raise WorkerKilled
        task.result()

    async def answer(self, request: httpx.Request) -> httpx.Response:
        """Answer another worker as the REST interface does."""
        raise NotImplementedError


class Worker(SimulatedWorker):
    """A worker without instances."""

    def __init__(self, broker: Ground, network: Network, member: Member, chance: random.Random) -> None:
        super().__init__(broker, member, chance)
        client, self._connection = broker.client(self.link)
        self._client = client
        functions = TopicLog(client, METADATA, "metadata-tailer")
        assignments = TopicLog(client, ASSIGNMENTS, "assignments-tailer")
        self.metadata = FunctionMetadataManager(functions, lambda change: self.scheduling.reschedule(change.fqfn))
        self.scheduler = SchedulerManager(assignments, lambda key: None)
        self.leadership = Leadership(self.metadata, self.scheduler, lambda: self.scheduling.restart())
        self.membership = MembershipManager(member, self._join, self._stats, self.leadership.became)
        self.scheduling = Scheduling(CONFIG, self.metadata, self.scheduler, self.membership)
        http = httpx.AsyncClient(transport=network.transport())
        self.hand_over = HandOver(self.metadata, self.membership, http, CONFIG.request_timeout_s)

    async def _join(self, name: str, on_active_change: Hear) -> Participation:
        return await self._broker.enter(self.link, self._client, on_active_change, self.spawn)

    async def _stats(self) -> Mapping[str, Any]:
        return await self._broker.read_stats(self.link)

    def _close(self) -> None:
        self._connection.kill()

    async def answer(self, request: httpx.Request) -> httpx.Response:
        try:
            await self.metadata.submit(read_request(request))
        except (OutOfDate, FunctionExists) as exc:
            return httpx.Response(400, json={"reason": str(exc)})
        except NotLeader as exc:
            return httpx.Response(503, json={"reason": str(exc)})
        except MagnetarError as exc:
            return httpx.Response(500, json={"reason": str(exc)})
        return httpx.Response(204)


class Network:
    """REST between the workers, where requests are late and requests or responses are lost."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.workers: dict[int, SimulatedWorker] = {}
        self.is_mishap_free = False

    def transport(self) -> httpx.AsyncBaseTransport:
        """Return the transport for requests of one worker to the others."""

        async def send(request: httpx.Request) -> httpx.Response:
            await self._delay()
            target = self.workers.get(request.url.port or 0)
            if target is None or target.link.is_dead or self._is_lost():
                raise httpx.ConnectError("connection refused")
            if not target.is_ready.is_set():
                return httpx.Response(503, json={"reason": "not ready"})
            task = target.spawn(self._handle(target, request))
            try:
                async with asyncio.timeout(HTTP_TIMEOUT_S):
                    await asyncio.wait([task])
            except TimeoutError:
                raise httpx.ReadTimeout("no answer") from None
            if task.cancelled() or self._is_lost():
                raise httpx.ReadError("connection reset")
            await self._delay()
            answer: httpx.Response = task.result()
            return answer

        return httpx.MockTransport(send)

    async def _handle(self, target: SimulatedWorker, request: httpx.Request) -> httpx.Response:
        await target.link.thawed.wait()
        answer = await target.answer(request)
        await target.link.thawed.wait()
        return answer

    async def _delay(self) -> None:
        await asyncio.sleep(self._chance.expovariate(200))

    def _is_lost(self) -> bool:
        return not self.is_mishap_free and self._chance.random() < 0.03


def read_request(request: httpx.Request) -> FunctionRequest:
    head = b"Content-Type: " + request.headers["content-type"].encode() + b"\r\n\r\n"
    form = email.message_from_bytes(head + request.content, policy=email.policy.HTTP)
    parts = {part.get_param("name", header="content-disposition"): part for part in form.iter_parts()}
    metadata = FunctionMetaData.FromString(cast("bytes", parts["functionMetaData"].get_payload(decode=True)))
    is_deletion = str(parts["delete"].get_payload()).strip() == "true"
    return FunctionRequest(metadata, request.headers[REQUEST_ID_HEADER], is_deletion)


def is_refusal(exc: Exception) -> bool:
    """Return whether an answer is the leader's own rejection, which a retry cannot change."""
    if isinstance(exc, RequestRefused):
        return exc.status < 500
    return isinstance(exc, (OutOfDate, FunctionExists))
