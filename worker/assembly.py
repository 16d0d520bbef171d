"""Assembly of a worker from managers, logs, packages, runtimes and the REST interface."""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import httpx
from starlette.types import ASGIApp

from .. import __version__
from ..client.client import AsyncClient
from ..client.config import ConsumerConfig
from ..errors import MagnetarError
from ..instance.examination.package import Question
from ..instance.examination.source import Source, SourceQuestion
from ..membership.manager import INCARNATION, SUBSCRIPTION, TLS_PORT, Member, MembershipManager, Participation
from ..metadata.functions import Change, FunctionMetadataManager, fqfn
from ..metadata.packages import PackageStore
from ..runtime.interface import Runtime
from ..runtime.isolation.places import Isolation
from ..runtime.isolation.refused import REFUSED, RefusedRuntime
from ..runtime.isolation.users import find_users
from ..runtime.manager import FetchPackage, InstanceEnvironment, RuntimeManager
from ..runtime.process.forked import ForkedProcess
from ..runtime.process.runtime import ProcessRuntime
from ..runtime.requirements import lasting_installer
from ..runtime.spark.runtime import SparkRuntime
from ..runtime.thread.runtime import ThreadRuntime
from ..scheduler.assignments import InstanceKey
from ..scheduler.manager import SchedulerManager
from ..security.authorization.operations import TopicOperation
from ..tasks import TaskSet
from ..wire.functions_pb2 import FunctionMetaData, PackageLocationMetaData
from .admission import MARK
from .cluster.broker_admin import BrokerAdmin
from .cluster.grants import BrokerGrants
from .cluster.hand_over import HandOver
from .cluster.internal_topic import TopicLog, keep_compacted
from .cluster.leadership import Leadership
from .cluster.scheduling import Scheduling
from .config import WorkerConfig
from .functions.code_check import CodeCheck
from .functions.components import SINK, SOURCE
from .functions.cursor_reset import CursorReset
from .functions.deletion import SubscriptionCleanup, Termination
from .functions.deployments import DeploymentStates, Progress
from .functions.history import package_paths
from .functions.instances import Instances
from .functions.owner_rights import OwnerRights
from .functions.owners import Owners
from .functions.package_cleanup import PackageCleanup
from .functions.package_index import PackageIndex
from .functions.package_intake import PACKAGE_PREFIX, PackageIntake
from .functions.package_topics import PackageTopics
from .functions.package_urls import PackageUrls
from .functions.prerequisites import Prerequisites, subscription_of
from .functions.runs import Runs
from .functions.service import FunctionName, Functions
from .functions.state_changes import InstancesEnded, StateChanges
from .functions.state_plan import StatePlan
from .functions.state_tables import StateTables
from .functions.trials import Trials
from .functions.trigger import Trigger
from .rest.app import make_app
from .rest.cluster import ClusterRoutes
from .rest.connectors import ConnectorRoutes
from .rest.deployments import DeploymentRoutes
from .rest.functions import FunctionsRoutes
from .rest.guard import WorkerGuard
from .rest.packages import PackagesRoutes
from .rest.state import StateRoutes

PACKAGES_FOLDER = "packages"
_RETRY_S = 1.0
_log = logging.getLogger(__name__)


async def make_runtime_manager(
    config: WorkerConfig,
    worker_id: str,
    fetch_package: FetchPackage,
    owners: Owners,
    zygote: ForkedProcess | None = None,
) -> RuntimeManager:
    """Return a runtime manager with all available runtimes; nothing runs before its first `apply`.

    Args:
        config: worker settings.
        worker_id: worker id.
        fetch_package: fetches packages.
        owners: provides the roles that functions run as.
        zygote: process from which process instances are forked; None to start it with exec.
    """
    environment = InstanceEnvironment(
        worker_id=worker_id,
        service_url=config.service_url,
        admin_url=config.admin_url,
        data_dir=config.data_dir,
        cluster=config.cluster,
        state_url=config.state_url,
        state_key=config.state_key(),
        security=config.client_security,
        security_of=owners.security_of if owners.is_enabled else None,
        locks_topic=config.topic(config.locks_topic),
        secrets_provider=config.secrets_provider,
        secrets_config=json.dumps(dict(config.secrets_config)),
    )
    isolation = isolation_of(config)
    if isolation is None:
        runtimes: dict[str, Runtime] = {
            "process": ProcessRuntime(zygote, config.liveness_check_ms / 1000),
            "thread": ThreadRuntime(config.service_url),
            "spark": SparkRuntime(config.spark()),
        }
    else:
        await asyncio.to_thread(isolation.prepare)
        runtimes = {
            "process": ProcessRuntime(None, config.liveness_check_ms / 1000, isolation),
            **{name: RefusedRuntime(reason) for name, reason in REFUSED.items()},
        }
    return RuntimeManager(runtimes, fetch_package, environment, isolation=isolation)


def isolation_of(config: WorkerConfig) -> Isolation | None:
    """Return the system users and directories of a worker's instances, or None if they run as the worker's user.

    Raises:
        InvalidConfig: this process cannot switch users, or a user is unsuitable.
    """
    if not config.process_users:
        return None
    return Isolation(find_users(config.process_users), config.data_dir, config.data_dir / PACKAGES_FOLDER)


class Connections(NamedTuple):
    """A worker's connections.

    Attributes:
        admin: connection to the broker's REST interface.
        http: client for requests to other workers.
        client: client for topics.
        elsewhere: client for URLs in requests, such as package URLs; sends no credentials.
    """

    admin: BrokerAdmin
    http: httpx.AsyncClient
    client: AsyncClient
    elsewhere: httpx.AsyncClient


class Parts:
    """All parts of a worker; `WorkerService` starts and stops them."""

    def __init__(
        self,
        config: WorkerConfig,
        me: Member,
        connections: Connections,
        owners: Owners,
    ) -> None:
        admin, http, client, elsewhere = connections
        self._config = config
        self._client = client
        self._http = http
        self._admin = admin
        self._assigned = asyncio.Event()
        self._moved: set[InstanceKey] | None = None
        self._is_applied = asyncio.Event()
        self._deleted = asyncio.Event()
        self._runtime: RuntimeManager | None = None
        self._instances: Instances | None = None
        self._incarnation = uuid.uuid4().hex
        self.cleanup = SubscriptionCleanup(admin, lambda: self.metadata.all(), self._may_consume)
        tailer = f"{me.worker_id}-function"
        functions = TopicLog(client, config.topic(config.metadata_topic), f"{tailer}-metadata-tailer")
        assignments = TopicLog(client, config.topic(config.assignments_topic), f"{tailer}-assignment-tailer")
        self.metadata = FunctionMetadataManager(functions, self._function_changed, self.cleanup.remove)
        self.scheduler = SchedulerManager(assignments, self._assignments_changed)
        self.leadership = Leadership(self.metadata, self.scheduler, lambda: self.scheduling.restart())
        read_stats = partial(admin.topic_stats, config.topic(config.coordination_topic))
        self.membership = MembershipManager(me, self._join, read_stats, self.leadership.became)
        self.scheduling = Scheduling(config, self.metadata, self.scheduler, self.membership)
        self.trials = Trials(self.metadata, self._progress)
        topics = PackageTopics(client, config.topic(PACKAGE_PREFIX))
        self.packages = PackageStore(config.data_dir / PACKAGES_FOLDER, topics)
        self.code_check = CodeCheck(self._examine, self._read_source)
        index = TopicLog(client, config.topic(config.packages_topic), f"{me.worker_id}-packages-tailer")
        self.package_index = PackageIndex(index, f"{me.worker_id}-packages", self._package_named)
        urls = PackageUrls(
            self.packages, elsewhere, self.package_index, config.function_url_patterns, config.connector_url_patterns
        )
        self.package_cleanup = PackageCleanup(
            self.packages,
            admin,
            config.topic(PACKAGE_PREFIX),
            self._named_packages,
            lambda: self.leadership.is_leading,
            (self.package_index.undecided, self.metadata.log.undecided),
            lasting_installer(config.data_dir),
            isolation_of(config),
        )
        self._intake = PackageIntake(
            self.packages, self.code_check, urls, self.package_cleanup.refused, has_state=bool(config.state_url)
        )
        logs = (functions.topic, assignments.topic, config.topic(config.packages_topic))
        self.keep_compacted = partial(
            keep_compacted, admin.compact, logs, lambda: self.leadership.is_leading, config.compaction_s
        )
        hand_over = HandOver(self.metadata, self.membership, http, config.request_timeout_s)
        self.tables = StateTables(config.state_url, config.state_key(), config.client_security)
        self._grants = BrokerGrants(admin)
        self.owners = owners
        self.rights = OwnerRights(config.authorization, self._grants)
        prerequisites = Prerequisites(config, me.worker_id, client, admin, self.rights)
        self.functions = Functions(
            self.metadata, self._intake, admin, hand_over, prerequisites, self._end_instances, self._state_of_version,
            StatePlan(self.tables), self.owners, self.rights,
        )  # fmt: skip
        self.state_changes = StateChanges(self.metadata, self._what_runs, self.tables)

    async def _may_consume(self, metadata: FunctionMetaData, topic: str) -> bool:
        """Return whether a function's owner may still use its subscription on a topic."""
        if not self.owners.is_enabled:
            return True
        subscription = subscription_of(metadata.functionDetails)
        return await self.rights.may(self.owners.owner_of(metadata), topic, TopicOperation.CONSUME, subscription)

    def _package_named(self, package_ids: Iterable[str]) -> None:
        self.package_cleanup.notice(package_ids)

    def _function_changed(self, change: Change) -> None:
        if change.before is not None:
            self.package_cleanup.notice(path.removeprefix(PACKAGE_PREFIX) for path in package_paths(change.before))
        self.scheduling.reschedule(change.fqfn)
        self.trials.notice(change)
        self.state_changes.notice(change)
        if change.after is None:
            self._deleted.set()

    async def _examine(self, question: Question) -> str | None:
        return None if self._runtime is None else await self._runtime.examine(question)

    async def _read_source(self, question: SourceQuestion) -> Source | None:
        return None if self._runtime is None else await self._runtime.read_source(question)

    async def _end_instances(self, name: FunctionName, metadata: FunctionMetaData) -> None:
        if self._instances is None:
            raise MagnetarError("this worker is still starting: retry")
        locks = self._config.topic(self._config.locks_topic)
        await Termination(self._instances, self._admin, locks).run(name, metadata)

    async def _what_runs(self, name: FunctionName, metadata: FunctionMetaData) -> str:
        if self._instances is None:
            return "this worker is still starting"
        locks = self._config.topic(self._config.locks_topic)
        return await InstancesEnded(self._instances, self._admin, locks).what_runs(name, metadata)

    async def _progress(self, name: FunctionName, metadata: FunctionMetaData) -> Progress:
        if self._instances is None:
            raise MagnetarError("this worker is still starting")
        return await DeploymentStates(self.metadata, self._instances).progress(name, metadata)

    async def _state_of_version(self, name: FunctionName, metadata: FunctionMetaData) -> str:
        return (await self._progress(name, metadata)).state

    def _assignments_changed(self, key: InstanceKey) -> None:
        if self._moved is not None:
            self._moved.add(key)
        self._is_applied.clear()
        self._assigned.set()
        if self._instances is not None:
            self._instances.notice_change()

    def _named_packages(self) -> set[str]:
        paths = {path for metadata in self.metadata.all() for path in package_paths(metadata)}
        return {path.removeprefix(PACKAGE_PREFIX) for path in paths}.union(self.package_index.package_ids())

    async def _join(self, name: str, on_active_change: Callable[[bool], None]) -> Participation:
        properties = {"id": name, MARK: __version__, INCARNATION: self._incarnation}
        if self.membership.me.tls_port:
            properties[TLS_PORT] = str(self.membership.me.tls_port)
        return await self._client.subscribe(
            self._config.topic(self._config.coordination_topic),
            SUBSCRIPTION,
            ConsumerConfig(
                type="Failover", name=name, properties=properties, initial_position="Earliest",
                on_active_change=on_active_change,
            ),
        )  # fmt: skip

    async def keep_tokens(self) -> None:
        """Renew the tokens of the functions running here before they expire, until cancelled."""
        me = self.membership.me.worker_id

        def owners_here() -> set[str]:
            held = (one.instance.functionMetaData for one in self.scheduler.of_worker(me).values())
            return {owner for metadata in held if (owner := self.owners.signed_role(metadata)) is not None}

        await self.owners.keep_renewed(owners_here)

    async def run_instances(self, runtime: RuntimeManager) -> None:
        """Apply assignments to the runtime, until cancelled."""
        me = self.membership.me.worker_id
        tasks = TaskSet(f"worker {me}")
        tasks.keep(lambda: self._remove_logs(runtime), "log cleanup")
        self._moved = None
        self._assigned.set()
        try:
            while True:
                await self._assigned.wait()
                self._assigned.clear()
                try:
                    await self._follow(runtime)
                    self._is_applied.set()
                except MagnetarError as exc:
                    self._moved = None
                    _log.warning("cannot change this worker's instances; retrying: %s", exc)
                    await asyncio.sleep(_RETRY_S)
                    self._assigned.set()
        finally:
            await tasks.close()

    async def _follow(self, runtime: RuntimeManager) -> None:
        """Apply all assignments, or those that changed since the last call, to the runtime."""
        me = self.membership.me.worker_id
        moved, self._moved = self._moved, set()
        if moved is None:
            await runtime.apply(self.scheduler.of_worker(me))
            return
        found = ((key, self.scheduler.assignment(key)) for key in moved)
        await runtime.change({str(key): held if held and held.workerId == me else None for key, held in found})

    async def _remove_logs(self, runtime: RuntimeManager) -> None:
        """Remove the logs of deleted functions, including those deleted while this worker was down, until cancelled.

        Removal is retried while instances are still ending.
        """
        self._deleted.set()
        while True:
            await self._deleted.wait()
            self._deleted.clear()
            await self._is_applied.wait()
            if not await runtime.remove_logs({fqfn(metadata) for metadata in self.metadata.all()}):
                self._deleted.set()
                await asyncio.sleep(_RETRY_S)

    async def fetch_package(self, location: PackageLocationMetaData) -> Path:
        """Fetch the package of an instance that is about to start.

        After a partition or freeze, this worker may not know yet that the instance was moved to another worker. The
        assignments are therefore read to the end first, so that a moved instance is stopped before it starts.
        """
        await self._applied()
        return await self._intake.fetch(location)

    async def _applied(self) -> None:
        """Return once the runtime has applied all assignments that were in the log at the time of the call."""
        await self.scheduler.log.catch_up()
        await self._is_applied.wait()

    def make_app(self, runtime: RuntimeManager) -> ASGIApp:
        """Return the REST interface."""
        self._runtime = runtime
        instances = self._instances = Instances(runtime, self.scheduler, self.membership, self._http, self._applied)
        functions = FunctionsRoutes(
            self.functions,
            instances,
            self.packages,
            Trigger(self._client, self._admin, self.rights, self._config.trigger_timeout_s),
            self.tables,
            Runs(instances, self.tables),
            CursorReset(self.functions, instances, self._admin, self._may_consume),
        )
        states = DeploymentStates(self.metadata, instances, self.state_changes.waits_for)
        deployments = DeploymentRoutes(self.functions, instances, states, self.tables)
        state = StateRoutes(self.functions, self.tables)
        cluster = ClusterRoutes(self.membership, self.leadership, self.scheduling, self.scheduler, instances)

        async def read_metrics() -> bytes:
            from .rest import metrics

            return metrics.render(self._config.cluster, await instances.own_metrics(), self._gauges())

        # The first matching path wins: a state key may end like another path of a function.
        tables = (
            state.routes(), functions.routes(), deployments.routes(), cluster.routes(),
            PackagesRoutes(self.package_index, self.packages).routes(),
            *(
                ConnectorRoutes(self.functions.of(kind), instances, self.packages, self.tables).routes()
                for kind in (SOURCE, SINK)
            ),
        )  # fmt: skip
        settings = self._config.authorization
        guard = WorkerGuard(settings, self._grants) if settings.is_enabled else None
        return make_app(tables, read_metrics, guard)

    def _gauges(self) -> list[tuple[str, str, float]]:
        me = self.membership.me.worker_id
        unreadable_metadata = self.metadata.log.unreadable_records
        unreadable_assignments = self.scheduler.log.unreadable_records
        gauges: list[tuple[str, str, float]] = [
            ("instance_count", "Instances assigned to this worker.", self.scheduler.count_of_worker(me)),
            ("unreadable_metadata_records", "Records skipped in the metadata topic.", unreadable_metadata),
            ("unreadable_assignment_records", "Records skipped in the assignments topic.", unreadable_assignments),
        ]
        if self.leadership.is_leading:
            functions = list(self.metadata.all())
            expected = sum(metadata.functionDetails.parallelism for metadata in functions)
            gauges += [
                ("is_leader", "1 on the leader.", 1),
                ("total_function_count", "Functions in the cluster.", len(functions)),
                ("total_expected_instance_count", "Sum of the functions' parallelism.", expected),
            ]
        return gauges
