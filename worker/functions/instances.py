"""Instances on all workers: status, statistics, restart, runs and logs, local or from the workers that run them.

An unresponsive worker does not delay the others (see `peers`); its instances are reported as not running, with the
reason.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx

from ...errors import MagnetarError, RequestRefused, RunNotYet, RunRefused
from ...membership.manager import MembershipManager
from ...runtime.manager import RuntimeManager
from ...scheduler.manager import SchedulerManager
from ...tasks import within
from ...web.client import Answer
from ...wire.functions_pb2 import STOPPED, Assignment, FunctionMetaData, FunctionStatus, MetricsData
from ...wire.printable import one_line
from ..cluster.peers import Round
from .components import FUNCTION, Component, component_of
from .log_stream import stream_log
from .service import FunctionName
from .status_json import deployed_json, function_stats, function_status, instance_stats

PEER_TIMEOUT_S = 2.0
"""Maximum pause in seconds while another worker sends a log."""

RESTART_TIMEOUT_S = 20.0
"""Time limit in seconds for another worker to restart an instance."""

RUN_TIMEOUT_S = 10.0
"""Time limit in seconds for another worker to start a run, for which it may have to start a process."""

SETTLE_TIMEOUT_S = 5.0
"""Maximum time in seconds that a request waits to see its change in the assignments before it responds."""

STOP_TIMEOUT_S = 10.0
"""Maximum time that a stop request waits for instances to end."""

ENDED_TIMEOUT_S = 13.0
"""Time limit in seconds for a worker to confirm the end of instances, which are killed after 10 s."""

FOLLOW_AGAIN_S = 1.0
"""Pause in seconds before a followed log that ended is requested again, as its worker may have restarted."""

_POLL_S = 0.02

Json = dict[str, Any]
Ask = Callable[[Round, FunctionName, int, str], Awaitable[Json]]
"""Returns the owner's report about an instance; called with the round, function, instance number and owner id."""


class InstanceMetrics(NamedTuple):
    """Metrics of one instance.

    Attributes:
        key: ``tenant/namespace/name:number``.
        component: kind of component.
        data: metrics of the instance.
    """

    key: str
    component: Component
    data: MetricsData


class Instances:
    """Queries and commands to instances on any worker."""

    def __init__(
        self,
        runtime: RuntimeManager,
        scheduler: SchedulerManager,
        membership: MembershipManager,
        http: httpx.AsyncClient,
        applied: Callable[[], Awaitable[None]],
    ) -> None:
        """Create the object; `applied` returns once the runtime has applied all assignments written before the call."""
        self._runtime = runtime
        self._applied = applied
        self._scheduler = scheduler
        self._membership = membership
        self._me = membership.me.worker_id
        self._http = http
        self._changed = asyncio.Event()

    def notice_change(self) -> None:
        """Wake the tasks that wait for assignments."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def settle(self, name: FunctionName, metadata: FunctionMetaData | None) -> bool:
        """Wait, with a timeout, until the assignments match a function's newest record or its deletion.

        Returns:
            whether they match.
        """

        def is_settled() -> bool:
            held = self._scheduler.of_function(str(name))
            if metadata is None:
                return not held
            records = [item.instance.functionMetaData for _, item in held]
            # Versions restart with each creation, so those of a function that was just deleted do not count.
            are_new = (one.functionUuid == metadata.functionUuid and one.version >= metadata.version for one in records)
            return len(held) == metadata.functionDetails.parallelism and all(are_new)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_TIMEOUT_S):
                while not is_settled():
                    await self._changed.wait()
        return is_settled()

    async def ended_here(self, name: FunctionName) -> None:
        """Read the assignments to the end, and return once this worker runs no instance of a stopped function.

        Raises:
            RequestRefused: 409, the function is not stopped.
        """
        await self._applied()
        if not await self._runtime.ended(str(name)):
            raise RequestRefused(409, f"{name} was started again meanwhile: retry")

    async def not_ended(self, name: FunctionName) -> set[str]:
        """Wait until no worker runs a stopped function, and return the workers that did not confirm in time.

        Raises:
            RequestRefused: 409, the function is not stopped.
        """
        questions = self._round()
        roster = await self._membership.roster()
        workers = {self._me, *(member.worker_id for member in roster.members), *self._owners(name).values()}

        async def has_ended(worker: str) -> bool:
            try:
                if worker == self._me:
                    async with asyncio.timeout(ENDED_TIMEOUT_S):
                        await self.ended_here(name)
                else:
                    await questions.ask(worker, "GET", _path(name, "ended"), ENDED_TIMEOUT_S)
            except (MagnetarError, TimeoutError) as exc:
                if getattr(exc, "status", 0) == 409:
                    raise
                return False
            return True

        asked = sorted(workers)
        answers = await asyncio.gather(*map(has_ended, asked))
        return {worker for worker, answer in zip(asked, answers, strict=True) if not answer}

    async def stopped(self, name: FunctionName, metadata: FunctionMetaData) -> None:
        """Wait, with a timeout, until all instances that should be stopped have ended."""
        numbers = [number for number, state in metadata.instanceStates.items() if state == STOPPED]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT_S):
                while True:
                    status = await self.status(name, component_of(metadata.functionDetails))
                    running = {item["instanceId"] for item in status["instances"] if item["status"]["running"]}
                    if not running.intersection(numbers):
                        return
                    await asyncio.sleep(_POLL_S)

    async def status(self, name: FunctionName, component: Component = FUNCTION) -> Json:
        """Return the status of all assigned instances."""
        return function_status(await self._of_all(name, partial(self._status_of, component)))

    async def stats(self, name: FunctionName) -> Json:
        """Return the statistics of all assigned instances."""
        return function_stats(await self._of_all(name, self._stats_of))

    async def instance_status(self, name: FunctionName, instance_id: int, component: Component = FUNCTION) -> Json:
        """Return the status of one instance."""
        owner = self._owners(name).get(instance_id)
        if owner is not None:
            return await self._status_of(component, self._round(), name, instance_id, owner)
        answer = component.status(FunctionStatus(failureException=f"{component.title} has not been scheduled"), "")
        del answer["workerId"]
        return answer

    async def instance_stats(self, name: FunctionName, instance_id: int) -> Json:
        """Return the statistics of one instance."""
        owner = self._owners(name).get(instance_id)
        if owner is None:
            return instance_stats(MetricsData())
        return await self._stats_of(self._round(), name, instance_id, owner)

    async def statuses_here(self, names: Iterable[FunctionName]) -> dict[str, Json]:
        """Return `running` and `error` of each instance of some functions on this worker, by instance name."""
        keys = [
            f"{name}:{number}" for name in names for number, owner in self._owners(name).items() if owner == self._me
        ]
        return {key: await self._liveness(key) for key in keys}

    async def _liveness(self, key: str) -> Json:
        try:
            status = await self._runtime.status(key)
        except KeyError:  # assigned, but not started yet
            return {"running": False, "error": ""}
        except MagnetarError as exc:
            return {"running": False, "error": str(exc)}
        return {"running": status.running, "error": status.failureException}

    async def statuses(self, tenant: str, namespace: str, names: Sequence[FunctionName]) -> dict[str, Json]:
        """Same as `statuses_here`, but from all workers, with one request each; a failed request becomes the error."""
        of_worker: dict[str, list[str]] = {}
        for name in names:
            for number, owner in self._owners(name).items():
                of_worker.setdefault(owner, []).append(f"{name}:{number}")
        questions = self._round()
        path = f"{FUNCTION.path}/{quote(tenant, safe='')}/{quote(namespace, safe='')}?states=true&here=true"

        async def ask(worker: str) -> dict[str, Json]:
            if worker == self._me:
                return await self.statuses_here(names)
            try:
                return await questions.ask(worker, "GET", path)
            except MagnetarError as exc:
                return {key: {"running": False, "error": str(exc)} for key in of_worker[worker]}

        answers = await asyncio.gather(*map(ask, of_worker))
        return {key: status for answer in answers for key, status in answer.items()}

    def _round(self) -> Round:
        return Round(self._membership, self._http)

    def _owners(self, name: FunctionName) -> dict[int, str]:
        """Return the worker of each assigned instance by instance number."""
        return {key.instance_id: held.workerId for key, held in self._scheduler.of_function(str(name))}

    async def _of_all(self, name: FunctionName, ask: Ask) -> Mapping[int, Json]:
        owners, questions = self._owners(name), self._round()
        answers = await asyncio.gather(*(ask(questions, name, number, owner) for number, owner in owners.items()))
        return dict(zip(owners, answers, strict=True))

    async def _status_of(
        self, component: Component, questions: Round, name: FunctionName, instance_id: int, owner: str
    ) -> Json:
        try:
            if owner == self._me:
                return component.status(await self._runtime.status(f"{name}:{instance_id}"), owner)
            return await questions.ask(owner, "GET", _path(name, instance_id, "status", base=component.path))
        except KeyError:
            # Assigned, but not processed by the runtime manager yet, or stopped.
            return component.status(FunctionStatus(), owner)
        except MagnetarError as exc:
            return component.status(FunctionStatus(failureException=str(exc)), owner)

    async def _stats_of(self, questions: Round, name: FunctionName, instance_id: int, owner: str) -> Json:
        try:
            if owner == self._me:
                return instance_stats(await self._runtime.metrics(f"{name}:{instance_id}"))
            return await questions.ask(owner, "GET", _path(name, instance_id, "stats"))
        except KeyError:
            return instance_stats(MetricsData())
        except MagnetarError as exc:
            # Pulsar's statistics have no field for a reason, but zeros alone would be misleading.
            return {"error": str(exc), **instance_stats(MetricsData())}

    async def deployed(self, name: FunctionName) -> Mapping[int, Json]:
        """Return the workers' reports about the versions of all assigned instances."""
        return await self._of_all(name, self._deployed_of)

    async def instance_deployed(self, name: FunctionName, instance_id: int) -> Json:
        """Return this worker's report about the version of an instance; empty if the instance runs elsewhere."""
        return await self._deployed_of(self._round(), name, instance_id, self._me)

    async def _deployed_of(self, questions: Round, name: FunctionName, instance_id: int, owner: str) -> Json:
        try:
            if owner == self._me:
                return deployed_json(*await self._runtime.deployed(f"{name}:{instance_id}"))
            return await questions.ask(owner, "GET", _path(name, instance_id, "deployment"))
        except KeyError:
            return {}  # assigned, but not processed by the runtime manager yet
        except MagnetarError as exc:
            return {"error": str(exc)}

    async def restart(self, name: FunctionName, instance_id: int | None, component: Component = FUNCTION) -> None:
        """Restart one instance, or all assigned instances."""
        owners, questions = self._owners(name), self._round()
        if instance_id is not None:
            if instance_id not in owners:
                raise RequestRefused(400, f"{name}/{instance_id} doesn't exist")
            owners = {instance_id: owners[instance_id]}
        if not owners:
            raise RequestRefused(400, f"{name} has not been assigned yet")
        restart = partial(self._restart_one, component, questions, name)
        await asyncio.gather(*(restart(number, owner) for number, owner in owners.items()))

    async def _restart_one(
        self, component: Component, questions: Round, name: FunctionName, instance_id: int, owner: str
    ) -> None:
        if owner != self._me:
            path = _path(name, instance_id, "restart", base=component.path)
            await questions.ask(owner, "POST", path, RESTART_TIMEOUT_S)
            return
        try:
            await self._runtime.restart(f"{name}:{instance_id}")
        except KeyError:
            raise RequestRefused(400, f"{name}/{instance_id} has not been assigned yet") from None

    async def begin_run(self, name: FunctionName, instance_id: int, run_id: str) -> None:
        """Start a run of an instance; raises 409 if that is not possible, and 503 if it will be possible shortly."""
        owner = self._owners(name).get(instance_id)
        if owner is None:
            raise RequestRefused(503, f"{name} has not been assigned to a worker yet")
        if owner != self._me:
            path = f"{_path(name, instance_id, 'trigger')}?runId={quote(run_id, safe='')}"
            await self._round().ask(owner, "POST", path, RUN_TIMEOUT_S)
            return
        try:
            await self._runtime.begin_run(f"{name}:{instance_id}", run_id)
        except KeyError:
            raise RequestRefused(503, f"{name} is still starting on worker {owner}") from None
        except RunRefused as exc:
            raise RequestRefused(503 if isinstance(exc, RunNotYet) else 409, str(exc)) from exc

    async def own_stats(self) -> list[Json]:
        """Return the name and statistics of every instance on this worker."""
        return [{"name": one.key, "metrics": instance_stats(one.data)} for one in await self.own_metrics()]

    async def own_metrics(self) -> list[InstanceMetrics]:
        """Return the metrics of every running instance on this worker."""

        async def read(key: str, held: Assignment) -> InstanceMetrics:
            component = component_of(held.instance.functionMetaData.functionDetails)
            try:
                return InstanceMetrics(key, component, await self._runtime.metrics(key))
            except (KeyError, MagnetarError):
                return InstanceMetrics(key, component, MetricsData())

        held = self._scheduler.of_worker(self._me)
        return await asyncio.gather(*(read(key, held[key]) for key in sorted(held)))

    def assigned(self, name: FunctionName) -> list[int]:
        """Return the numbers of all assigned instances."""
        return list(self._owners(name))

    async def read_log(
        self,
        name: FunctionName,
        instance_id: int,
        lines: int,
        prefix: bytes,
        *,
        is_following: bool,
        component: Component = FUNCTION,
    ) -> AsyncIterator[bytes]:
        """Yield the last lines of an instance's log from its worker and, when following, from later workers.

        The log of a dead instance remains on its worker. If the worker has died, a line reports that its log is
        unavailable; if it returns, its last lines are requested again.
        """
        said = ""
        while True:
            owner = self._owners(name).get(instance_id)

            def is_here(owner: str | None = owner) -> bool:
                return self._owners(name).get(instance_id) in (owner, None)

            if owner is None or owner == self._me:
                path = self._runtime.log_file(f"{name}:{instance_id}")
                async for piece in stream_log(path, lines, prefix, is_following=is_following, is_here=is_here):
                    yield piece
            else:
                path_there = f"{_path(name, instance_id, 'logs', base=component.path)}?tail={lines}&relayed=true"
                try:
                    async for piece in self._read_log_of(owner, path_there, prefix, is_following=is_following):
                        said = ""
                        yield piece
                except (MagnetarError, httpx.HTTPError) as exc:
                    before, said = said, _why_no_log(owner, exc)
                    if said != before:
                        yield prefix + said.encode() + b"\n"
            if not is_following:
                return
            changed = self._changed
            if is_here():
                await within(FOLLOW_AGAIN_S, changed.wait())

    async def _read_log_of(self, owner: str, path: str, prefix: bytes, *, is_following: bool) -> AsyncIterator[bytes]:
        """Yield an instance's log from another worker until that worker ends the stream.

        Raises:
            RequestRefused, httpx.HTTPError: the worker did not answer or stopped responding.
        """
        member = (await self._membership.roster()).member(owner)
        if member is None:
            raise RequestRefused(503, f"worker {owner} is not a member of the cluster")
        url = f"{self._membership.url_of(member)}{path}&follow={str(is_following).lower()}"
        timeout = httpx.Timeout(PEER_TIMEOUT_S, read=None if is_following else PEER_TIMEOUT_S)
        async with self._http.stream("GET", url, timeout=timeout) as response:
            if not response.is_success:
                content, phrase = await response.aread(), response.reason_phrase
                answer = Answer("GET", path, response.status_code, phrase, response.headers, content)
                raise RequestRefused(answer.status, answer.reason)
            rest = b""
            async for piece in response.aiter_bytes():  # lines end with LF only
                *whole, rest = (rest + piece).split(b"\n")
                for line in whole:
                    yield prefix + line + b"\n"
            if rest:
                yield prefix + rest + b"\n"


def _why_no_log(owner: str, error: Exception) -> str:
    if isinstance(error, RequestRefused) and error.status != 503:
        return f"worker {owner} rejected the request: {error}"
    return f"worker {owner} did not answer: {one_line(str(error)) or type(error).__name__}"


def _path(name: FunctionName, *more: object, base: str = FUNCTION.path) -> str:
    parts = (name.tenant, name.namespace, name.name, *map(str, more))
    return f"{base}/" + "/".join(quote(part, safe="") for part in parts)
