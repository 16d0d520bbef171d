"""Functions service: validates requests about functions, stores packages and submits changes, independently of HTTP.

Each rejection is a `RequestRefused`, with the same status and message as in Pulsar's own worker if there is an
equivalent.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...config.function_config import FunctionConfig
from ...config.rules import with_defaults
from ...config.sql_statement import SQL_CLASS
from ...errors import FunctionExists, InvalidConfig, MagnetarError, NotLeader, OutOfDate, RequestRefused
from ...metadata.functions import FunctionMetadataManager, FunctionRequest
from ...metadata.packages import Upload
from ...wire.functions_pb2 import RUNNING, STOPPED, FunctionMetaData, FunctionState, PackageLocationMetaData
from ..cluster.broker_admin import BrokerAdmin
from ..cluster.hand_over import NO_LEADER, Deadline, HandOver
from .components import FUNCTION, Component
from .history import begin, code_location, fallback_of, replace_version, restored
from .owner_rights import OwnerRights
from .owners import Deployer, Owners
from .package_index import TYPES, parse_package_url
from .package_intake import PackageIntake, built_in_location
from .prerequisites import Prerequisites, subscription_of
from .state_plan import StatePlan

LOOK_TIMEOUT_S = 5.0
"""Time limit in seconds for reading the log to the end when a request names an unknown function."""


@dataclass(frozen=True, slots=True)
class FunctionName:
    """Function name from a request's path."""

    tenant: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.tenant}/{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Deployment:
    """The parts of a register or update request.

    Attributes:
        config: JSON object of `functionConfig`.
        upload: the `data` part, or None if it is missing.
        file_name: file name of the `data` part.
        url: content of the `url` part.
        rolls_back: for an update, whether to restore the previous version if the new one fails to start.
        keeps_state: for an update, whether to save the previous version's state under its number.
        deployer: client that sent the request; None without authentication.
        updates_auth: for an update, whether to run as the sender instead of the current owner (`updateAuthData`).
    """

    config: Mapping[str, Any]
    upload: Upload | None = None
    file_name: str | None = None
    url: str | None = None
    rolls_back: bool = False
    keeps_state: bool = False
    deployer: Deployer | None = None
    updates_auth: bool = False


MakeRecord = Callable[[FunctionName, Deployment, Deadline], Awaitable[FunctionMetaData]]
"""Checks a deployment, stores its package and returns the new record."""


@dataclass
class Functions:
    """Requests about functions that change or read their records; `Instances` handles running instances.

    Attributes:
        metadata: functions' records.
        packages: functions' code.
        admin: client for the broker's REST interface.
        hand_over: sends requests to the leader.
        prerequisites: prepares topics and subscriptions before a function is created.
        end_instances: returns once no instance of a stopped function is running.
        state_of_version: returns the progress of a record's version, as in `web.deployments`.
        owners: provides the roles that functions run as.
        rights: checks the permissions of these roles.
        state_plan: adds requests to save or restore a state to records.
        component: kind of component.
    """

    metadata: FunctionMetadataManager
    packages: PackageIntake
    admin: BrokerAdmin
    hand_over: HandOver
    prerequisites: Prerequisites
    end_instances: Callable[[FunctionName, FunctionMetaData], Awaitable[None]]
    state_of_version: Callable[[FunctionName, FunctionMetaData], Awaitable[str]]
    state_plan: StatePlan
    owners: Owners
    rights: OwnerRights
    component: Component = FUNCTION

    def of(self, component: Component) -> Functions:
        """Return a copy for components of another kind."""
        return replace(self, component=component)

    def get(self, name: FunctionName) -> FunctionMetaData | None:
        """Return the record of a function, or None if no component of this kind has the name."""
        metadata = self.metadata.get(str(name))
        return metadata if self.component.has(metadata) else None

    def find(self, name: FunctionName) -> FunctionMetaData:
        """Return the record of a function; raise 404 if it does not exist."""
        metadata = self.get(name)
        if metadata is None:
            raise RequestRefused(404, f"{self.component.title} {name.name} doesn't exist")
        return metadata

    async def newest(self, name: FunctionName) -> FunctionMetaData:
        """Return the record of a function to be changed; raise 404 if it does not exist even at the end of the log.

        Another worker may have created the function, and this worker may not have read its record yet.
        """
        if self.get(name) is None:
            await self._look()
        return self.find(name)

    async def _look(self) -> None:
        """Read the log to the end, so that no request is rejected because of stale records.

        Raises:
            RequestRefused: 503, the log cannot be read.
        """
        try:
            async with asyncio.timeout(LOOK_TIMEOUT_S):
                await self.metadata.log.catch_up()
        except (TimeoutError, MagnetarError) as exc:
            reason = str(exc) or f"the broker did not answer within {LOOK_TIMEOUT_S:g} s"
            raise RequestRefused(
                503, f"this worker cannot read changes made by others: {reason}; retry the request"
            ) from exc

    def names(self, tenant: str, namespace: str) -> list[str]:
        """Return the names of a namespace's functions."""
        found = (
            (name, self.get(FunctionName(tenant, namespace, name))) for name in self.metadata.names(tenant, namespace)
        )
        return [name for name, metadata in found if metadata is not None]

    async def register(self, name: FunctionName, deployment: Deployment) -> int:
        """Create a function, and return its version once the record is durable."""
        return await self._deploy(name, deployment, self._new_record)

    async def _deploy(self, name: FunctionName, deployment: Deployment, make_record: MakeRecord) -> int:
        deadline = Deadline(self.hand_over.timeout_s)
        if deployment.url is None:
            return await self._deploy_upload(name, deployment, make_record, deadline)
        await self._check_package(deployment, deadline)
        upload, file_name = await self.packages.fetch_url(deployment.url, self.component.title)
        try:
            deployment = replace(deployment, upload=upload, file_name=file_name)
            return await self._deploy_upload(name, deployment, make_record, deadline)
        finally:
            await self.packages.discard(upload)

    async def _deploy_upload(
        self, name: FunctionName, deployment: Deployment, make_record: MakeRecord, deadline: Deadline
    ) -> int:
        try:
            with self.packages.used(deployment.upload):
                async with deadline.bound():
                    metadata = await make_record(name, deployment, deadline)
        except MagnetarError:
            await self.packages.refused(deployment.upload)
            raise
        with self.packages.used(deployment.upload):
            await self._submit(metadata, deadline)
            if deployment.upload is not None:
                await self.packages.keep_named(deployment.upload, code_location(metadata), deadline)
        return metadata.version

    async def _new_record(self, name: FunctionName, deployment: Deployment, deadline: Deadline) -> FunctionMetaData:
        namespaces = await deadline.ask(lambda: self.admin.namespaces(name.tenant))
        if namespaces is None:
            raise RequestRefused(400, "Tenant does not exist")
        if f"{name.tenant}/{name.namespace}" not in namespaces:
            raise RequestRefused(400, "Namespace does not exist")
        if self.metadata.get(str(name)) is not None:
            # Another worker may have deleted the component, which this worker may not have read yet.
            await deadline.ask(self.metadata.log.catch_up)
            if (there := self.metadata.get(str(name))) is not None:
                raise RequestRefused(400, self.component.clash(there.functionDetails))
        component = self.component
        try:
            config = await _checked(component, with_defaults(_named(component.read(deployment.config), name)), None)
        except InvalidConfig as exc:
            raise RequestRefused(400, str(exc)) from exc
        await self.prerequisites.check_machine(component.to_details(config))
        location, config = await self._keep(deployment, config, deadline)
        if location is None:
            raise RequestRefused(400, f"{component.title} package is not provided")
        metadata = FunctionMetaData(
            functionDetails=component.to_details(config),
            packageLocation=location,
            version=0,
            createTime=now_ms(),
            functionUuid=uuid.uuid4().hex,
            transformFunctionPackageLocation=await self._keep_transform(deployment, config, deadline, None),
        )
        self.owners.record(metadata, deployment.deployer)
        await self._check_rights(metadata, deadline)
        begin(metadata)
        self.prerequisites.check_patterns(metadata.functionDetails)
        await deadline.ask(lambda: self._prepare_output(metadata))
        await deadline.ask(lambda: self.prerequisites.prepare_inputs(metadata.functionDetails))
        return metadata

    async def notice(self, name: FunctionName) -> str:
        """Return a one-line notice about a function that was just created or changed, or an empty string."""
        config = self.component.from_details(self.find(name).functionDetails)
        return await asyncio.to_thread(self.component.notice, config)

    async def update(self, name: FunctionName, deployment: Deployment) -> int:
        """Change a function, keep fields that are not sent, and return the new version."""
        return await self._deploy(name, deployment, self._changed_record)

    async def _changed_record(self, name: FunctionName, deployment: Deployment, deadline: Deadline) -> FunctionMetaData:
        component = self.component
        existing = self.get(name)
        if existing is None:
            await deadline.ask(self.metadata.log.catch_up)
            existing = self.get(name)
        if existing is None:
            # As in Pulsar, a component of another kind results in 404, but a missing component in 400.
            status = 400 if self.metadata.get(str(name)) is None else 404
            raise RequestRefused(status, f"{component.title} {name.name} doesn't exist")
        before = component.from_details(existing.functionDetails)
        if deployment.keeps_state:
            await self.state_plan.check_keep(existing)
        try:
            sent = _named(component.read(deployment.config), name)
            config = await _checked(component, component.merge(before, sent), before)
            has_package = deployment.upload is not None
            unchanged = config == before and not deployment.updates_auth
            if unchanged and not has_package:
                raise InvalidConfig("Update contains no change")
        except InvalidConfig as exc:
            raise RequestRefused(400, str(exc)) from exc
        self.prerequisites.check_isolation(component.to_details(config))
        location, config = await self._keep(deployment, config, deadline)
        if location is None:
            location = existing.packageLocation
            await self.packages.check_stored(location, config)
        metadata = _next_version(existing)
        self.owners.renew(metadata, existing, deployment.deployer, updates=deployment.updates_auth)
        metadata.functionDetails.CopyFrom(component.to_details(config))
        metadata.packageLocation.CopyFrom(location)
        transform = await self._keep_transform(deployment, config, deadline, existing)
        metadata.ClearField("transformFunctionPackageLocation")
        if transform is not None:
            metadata.transformFunctionPackageLocation.CopyFrom(transform)
        for instance_id in [key for key in metadata.instanceStates if key >= (config.parallelism or 1)]:
            del metadata.instanceStates[instance_id]
        fallback = None
        if deployment.rolls_back:
            fallback = fallback_of(existing, await self.state_of_version(name, existing))
        replace_version(existing, metadata, now_ms(), fallback)
        if deployment.keeps_state:
            self.state_plan.keep(existing, metadata)
        self.prerequisites.check_patterns(metadata.functionDetails)
        await self._check_rights(metadata, deadline)
        await deadline.ask(lambda: self._prepare_output(metadata))
        return metadata

    def _role_of(self, metadata: FunctionMetaData) -> str | None:
        """Return the role for a function's permission checks, or None if everything is allowed."""
        return self.owners.owner_of(metadata) if self.owners.is_enabled else None

    async def _prepare_output(self, metadata: FunctionMetaData) -> None:
        await self.prerequisites.prepare_output(metadata.functionDetails, self._role_of(metadata))

    async def _check_rights(self, metadata: FunctionMetaData, deadline: Deadline) -> None:
        """Check that a function's role may use its topics."""
        owner = self._role_of(metadata)
        if owner is not None:
            details = metadata.functionDetails
            await deadline.ask(lambda: self.rights.check(details, owner, subscription_of(details)))
        elif self.owners.is_enabled:
            raise RequestRefused(400, "the function has no role to run as: its credentials do not contain one")

    async def _check_package(self, deployment: Deployment, deadline: Deadline) -> None:
        """Check that the deployer may use the package named in a URL, if it is in our index."""
        url, sender = deployment.url or "", deployment.deployer
        if sender is None or not url.startswith(tuple(f"{kind}://" for kind in TYPES)):
            return
        package = parse_package_url(url)
        namespace = f"{package.tenant}/{package.namespace}"
        if not await deadline.ask(lambda: self.rights.may_use_packages(sender.role, namespace)):
            raise RequestRefused(
                403,
                f"not permitted to use packages of {namespace}: request the `packages` permission for that namespace",
            )

    async def restore(self, name: FunctionName, version: int, *, with_state: bool = False) -> int:
        """Redeploy an earlier version, optionally with its saved state, and return the new version number.

        Raises:
            RequestRefused: 404, the function does not exist; 400, the version or its state was not retained, or the
                version is already deployed; 409, a state change is in progress; 503, the state store did not answer.
        """
        await self.newest(name)
        await self._look()
        existing = self.find(name)
        metadata = restored(existing, version, now_ms())
        if with_state:
            await self.state_plan.check_put_back(existing, version)
            self.state_plan.put_back(metadata, version)
        await self._submit(metadata)
        return metadata.version

    async def deregister(self, name: FunctionName) -> None:
        """Delete a function: stop its instances, remove its subscriptions unless it keeps them, and delete its record.

        The name remains in use until the end, so that no leftovers can affect a later function with the same name.

        Cancellation: the function may remain in the stopped state; retry the request.
        """
        deadline = Deadline(self.hand_over.timeout_s)
        async with deadline.bound(f"{name} was not deleted (but may have been stopped)"):
            existing = await self._stopped(name, deadline)
            await deadline.ask(lambda: self.end_instances(name, existing))
        await self._submit(_next_version(existing), deadline, is_deletion=True)

    async def _stopped(self, name: FunctionName, deadline: Deadline) -> FunctionMetaData:
        """Stop all instances of a function and return its updated record."""
        for is_last in (False, False, True):
            await deadline.ask(self.metadata.log.catch_up)
            existing = self.find(name)
            states = states_of(existing)
            if all(state == STOPPED for state in states.values()):
                break
            try:
                await self.replace_states(name, dict.fromkeys(states, STOPPED), deadline=deadline)
            except RequestRefused as exc:
                if exc.status != 400 or is_last:
                    raise  # the cause is not a concurrent change
        return self.find(name)

    async def set_state(self, name: FunctionName, instance_id: int | None, state: FunctionState) -> None:
        """Start or stop one instance, or all instances that are not in the requested state yet."""
        states = states_of(await self.newest(name))
        chosen = tuple(states) if instance_id is None else (instance_id,)
        if not any(index in states and states[index] != state for index in chosen):
            await self._look()
            states = states_of(self.find(name))
        if not any(index in states and states[index] != state for index in chosen):
            raise RequestRefused(400, "Operation not permitted")
        await self.replace_states(name, {index: state if index in chosen else states[index] for index in states})

    async def replace_states(
        self,
        name: FunctionName,
        states: Mapping[int, FunctionState],
        *,
        raises_incarnation: bool = False,
        deadline: Deadline | None = None,
    ) -> None:
        """Start and stop instances; with a new incarnation, redelivered messages do not count as duplicates."""
        metadata = _next_version(self.find(name))
        metadata.cursorIncarnation += raises_incarnation
        for index, state in states.items():
            metadata.instanceStates[index] = state
        await self._submit(metadata, deadline)

    async def _submit(
        self, metadata: FunctionMetaData, deadline: Deadline | None = None, *, is_deletion: bool = False
    ) -> None:
        request = FunctionRequest(metadata, uuid.uuid4().hex, is_deletion)
        try:
            await self.hand_over.submit(request, deadline)
        except (OutOfDate, FunctionExists) as exc:
            raise RequestRefused(400, str(exc)) from exc

    async def decide_here(self, request: FunctionRequest) -> None:
        """Decide a request that another worker received; this worker must be the leader."""
        try:
            await self.metadata.submit(request)
        except (OutOfDate, FunctionExists) as exc:
            raise RequestRefused(400, str(exc)) from exc
        except NotLeader as exc:
            raise RequestRefused(503, f"{NO_LEADER}: {exc}") from exc

    async def _keep(
        self, deployment: Deployment, config: Any, deadline: Deadline
    ) -> tuple[PackageLocationMetaData | None, Any]:
        """Check and store any package of the request; return its location or None, and the config with its class."""
        if isinstance(config, FunctionConfig) and config.sql:
            if deployment.upload is not None or deployment.url:
                raise RequestRefused(400, "sql: the function is a SQL statement and has no package: omit the package")
            return built_in_location(SQL_CLASS), config
        if name := self.component.built_in(config):
            if (deployment.upload is not None and not config.transform_function_class_name) or deployment.url:
                raise RequestRefused(400, f"{name} is built in: omit the package or the type")
            return built_in_location(name), config
        if deployment.upload is None:
            return None, config
        location, class_name = await self.packages.keep(deployment.upload, deployment.file_name, config, deadline)
        return location, replace(config, class_name=class_name)

    async def _keep_transform(
        self, deployment: Deployment, config: Any, deadline: Deadline, existing: FunctionMetaData | None
    ) -> PackageLocationMetaData | None:
        """Return the location of an installed connector's transform function, or None if it has none."""
        if not self.component.built_in(config) or not config.transform_function_class_name:
            return None
        if deployment.upload is not None:
            return await self.packages.keep_transform(deployment.upload, deployment.file_name, config, deadline)
        if existing is None or not existing.HasField("transformFunctionPackageLocation"):
            raise RequestRefused(
                400, "transformFunctionClassName: the function's package is not provided: upload it as data"
            )
        await self.packages.check_transform(
            existing.transformFunctionPackageLocation, config.transform_function_class_name, config.tenant or ""
        )
        return existing.transformFunctionPackageLocation


def now_ms() -> int:
    """Return the current time for records."""
    return time.time_ns() // 1_000_000


def _next_version(existing: FunctionMetaData) -> FunctionMetaData:
    metadata = FunctionMetaData()
    metadata.CopyFrom(existing)
    metadata.version += 1
    return metadata


def states_of(metadata: FunctionMetaData) -> dict[int, FunctionState]:
    """Return the state of each instance by instance number."""
    return {index: metadata.instanceStates.get(index, RUNNING) for index in range(metadata.functionDetails.parallelism)}


async def _checked(component: Component, config: Any, before: Any) -> Any:
    """Return the config to store; raise InvalidConfig if it breaks a rule."""
    if component is FUNCTION:
        component.check(config)
        return config
    return await asyncio.to_thread(_checked_connector, component, config, before)  # it may import a connector


def _checked_connector(component: Component, config: Any, before: Any) -> Any:
    component.check(config)
    return component.complete(config, before)


def _named(config: Any, name: FunctionName) -> Any:
    return replace(config, tenant=name.tenant, namespace=name.namespace, name=name.name)
