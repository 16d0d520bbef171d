"""A worker's real parts on an in-memory broker and instances; killing a worker ends all its work."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import httpx
from magnetar.client.client import AsyncClient
from magnetar.client.config import ConsumerConfig
from magnetar.errors import MagnetarError, RequestRefused
from magnetar.membership.manager import Member
from magnetar.runtime.manager import InstanceEnvironment, RuntimeManager
from magnetar.wire.functions_pb2 import PackageLocationMetaData
from magnetar.worker.assembly import Connections, Parts
from magnetar.worker.cluster.broker_admin import BrokerAdmin
from magnetar.worker.functions.instances import Instances
from magnetar.worker.functions.owners import Owners
from magnetar.worker.functions.service import FunctionName

from .function_world import SimulatedInstance, SimulatedRuntime, World
from .simulated_broker import Broker, Client, Link, participate
from .simulated_cluster import CONFIG, Network, SimulatedWorker, read_request

_T = TypeVar("_T")
LOCKS = CONFIG.topic(CONFIG.locks_topic)
COORDINATION = CONFIG.topic(CONFIG.coordination_topic)

_worker: contextvars.ContextVar[WholeWorker | None] = contextvars.ContextVar("worker", default=None)


def register_tasks() -> None:
    """Make every task of the running loop belong to the worker that created it, directly or indirectly."""

    def make(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
        context = options.get("context")
        worker = _worker.get() if context is None else context.get(_worker)
        task = asyncio.Task(work, loop=loop, **options)
        if worker is not None:
            worker.tasks[task] = None
            task.add_done_callback(lambda task: worker.tasks.pop(task, None))
        return task

    asyncio.get_running_loop().set_task_factory(make)  # type: ignore[arg-type]


class SimulatedAdmin:
    """A worker's connection to the broker's REST interface."""

    def __init__(self, broker: Broker, link: Link, world: World) -> None:
        self._broker = broker
        self._link = link
        self._world = world

    async def namespaces(self, tenant: str) -> list[str]:
        return [f"{tenant}/{name}" for name in ("default", "n")]

    async def topic_stats(self, topic: str) -> Mapping[str, Any]:
        assert topic == COORDINATION
        return await self._broker.read_stats(self._link)

    async def create_subscription(self, topic: str, subscription: str, *, is_earliest: bool = False) -> bool:
        await self._link.to_broker()
        if topic != LOCKS:
            is_there = (topic, subscription) in self._world.subscriptions
            self._world.subscribe(topic, subscription, is_earliest=is_earliest)
            await self._link.to_worker()
            return not is_there
        is_free = subscription not in self._world.locks and subscription not in self._world.fenced
        if is_free:
            self._world.fenced.add(subscription)
        await self._link.to_worker()
        return is_free

    async def is_durable(self, topic: str, subscription: str) -> bool:
        await self._link.to_broker()
        return subscription in self._world.fenced

    async def subscribers(self, topic: str, subscription: str) -> list[Mapping[str, Any]]:
        await self._link.to_broker()
        found = self._world.subscriptions.get((topic, subscription))
        names = [one.key for one in found.consumers] if found else []
        await self._link.to_worker()
        return [{"consumerName": name, "metadata": {"id": name.rpartition(":")[0]}} for name in names]

    async def delete_subscription(self, topic: str, subscription: str, *, is_forced: bool = False) -> bool:
        await self._link.to_broker()
        if topic == LOCKS:
            holder = self._world.locks.pop(subscription, None)
            if holder is not None:
                self._world.detach(holder)
            answer = True
        else:
            answer = self._world.delete(topic, subscription, is_forced=is_forced)
        await self._link.to_worker()
        return answer

    async def compact(self, topic: str) -> None:
        """Do nothing: compaction is not simulated."""


class SimulatedClient(Client):
    """A worker's client that can also subscribe."""

    def __init__(self, broker: Broker, link: Link, world: World, worker: WholeWorker) -> None:
        super().__init__(broker, link)
        self._world = world
        self._worker = worker

    async def subscribe(self, topic: str, name: str, config: ConsumerConfig) -> Any:
        """Take part in the election, or make sure of a subscription."""
        if topic == COORDINATION:
            assert config.on_active_change is not None
            self._worker.spawn(participate(self._broker, self._link, config.on_active_change))
            return self
        await self._link.to_broker()
        self._world.subscribe(topic, name, is_earliest=config.initial_position == "Earliest")
        await self._link.to_worker()
        return self

    async def close(self) -> None:
        """Nothing stays attached."""


class WholeWorker(SimulatedWorker):
    """A worker with all its parts."""

    def __init__(self, broker: Broker, world: World, network: Network, member: Member, directory: Path) -> None:
        chance = broker.chance
        super().__init__(broker, member, chance)
        self._context = contextvars.copy_context()
        self._context.run(_worker.set, self)
        client = SimulatedClient(broker, self.link, world, self)
        self._client = client
        admin = cast("BrokerAdmin", SimulatedAdmin(broker, self.link, world))
        http = httpx.AsyncClient(transport=network.transport())
        config = replace(CONFIG, data_dir=directory)
        owners = Owners(config.security, config.client_security, (), directory / "tokens")
        connections = Connections(admin, http, cast("AsyncClient", client), http)
        self.parts = self._context.run(Parts, config, member, connections, owners)
        self.metadata, self.scheduler = self.parts.metadata, self.parts.scheduler
        self.leadership, self.membership = self.parts.leadership, self.parts.membership
        self.scheduling = self.parts.scheduling
        self.functions = self.parts.functions
        cast("Any", self.functions)._keep = self._keep
        around = InstanceEnvironment(worker_id=member.worker_id, service_url="", admin_url="", data_dir=directory)
        runtimes = {"process": SimulatedRuntime(world, chance)}
        clock = asyncio.get_running_loop().time
        self.runtime = self._context.run(RuntimeManager, runtimes, self._fetch, around, clock)
        self.instances = Instances(self.runtime, self.scheduler, self.parts.membership, http, self.parts._applied)
        self.parts._instances = self.instances

    async def _keep(self, _deployment: object, config: _T, *_: object) -> tuple[PackageLocationMetaData, _T]:
        return PackageLocationMetaData(packagePath="package-" + "0" * 64, originalFileName="f.py"), config

    async def _fetch(self, _location: PackageLocationMetaData) -> Path:
        await self.parts._applied()
        return Path("f.py")

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:

        return asyncio.get_running_loop().create_task(work, context=self._context.copy())

    def _start_instances(self) -> None:
        self.spawn(self.parts.run_instances(self.runtime))

    def _close(self) -> None:
        self._client.kill()

    def kill_instances(self) -> None:
        """Do what the zygote does when this worker has been stopped for too long."""
        for one in self.running():
            one.kill()

    def running(self) -> list[SimulatedInstance]:
        """Return the instances of this worker."""
        supervisors = [held.supervisor or held.predecessor for held in self.runtime._held.values()]
        found = [cast("Any", one)._instance for one in supervisors if one is not None]
        return [one for one in found if isinstance(one, SimulatedInstance)]

    async def answer(self, request: httpx.Request) -> httpx.Response:
        try:
            if request.method == "GET":
                tenant, namespace, name, what = request.url.path.split("/")[4:]
                assert what == "ended"
                await self.instances.ended_here(FunctionName(tenant, namespace, name))
            else:
                await self.functions.decide_here(read_request(request))
        except RequestRefused as exc:
            return httpx.Response(exc.status, json={"reason": str(exc)})
        except MagnetarError as exc:
            return httpx.Response(500, json={"reason": str(exc)})
        return httpx.Response(204)
