"""`/admin/v3/sources` and `/admin/v3/sinks`, also in the singular: deployment and control of connectors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from starlette.responses import Response

from ...api.connector_config import definition
from ...connectors.register import find
from ...errors import InvalidConfig, RequestRefused
from ...instance.identity import table_of
from ...metadata.packages import PackageStore
from ...web.answers import as_json
from ...web.call import takes
from ...wire.functions_pb2 import RUNNING, STOPPED, FunctionState
from ..functions.definitions import connector_definitions
from ..functions.instances import Instances
from ..functions.service import FunctionName, Functions
from ..functions.state_tables import StateTables
from .app import WorkerCall, WorkerRoutes
from .functions import ROLLBACK, Deploy, auth_data, deployed, deployer_of, deployment_of, updates_auth
from .logs import FOLLOW, RELAYED, TAIL, stream_logs
from .multipart import Part, json_part


@dataclass(frozen=True, slots=True)
class ConnectorRoutes:
    """Handlers of one worker for one kind of connector.

    Attributes:
        functions: requests about components of this kind.
        instances: running instances.
        packages: code of the components.
        tables: state of the components.
    """

    functions: Functions
    instances: Instances
    packages: PackageStore
    tables: StateTables

    @property
    def kind(self) -> str:
        """``source`` or ``sink``."""
        return self.functions.component.title.lower()

    def routes(self) -> WorkerRoutes:
        """Return the routes for the plural and the singular path."""
        return tuple(row for base in (f"{self.kind}s", self.kind) for row in self._routes_of(f"/admin/v3/{base}"))

    def _routes_of(self, base: str) -> Iterator[Any]:
        kind, title = self.kind, self.functions.component.title
        one = base + "/{tenant}/{namespace}/{name}"
        instance = f"{one}/{{instance_id}}"
        yield "GET", f"{base}/builtin{kind}s", self.built_in
        yield "GET", f"{base}/builtin{kind}s/{{name}}/configdefinition", self.config_definition
        yield "POST", f"{base}/reloadBuiltIn{title}s", self.reload
        yield "GET", f"{base}/{{tenant}}/{{namespace}}", self.list_all
        yield "POST", one, self.register
        yield "PUT", one, self.update
        yield "DELETE", one, self.deregister
        yield "GET", one, self.get
        yield "GET", f"{one}/status", self.status
        yield "GET", f"{instance}/status", self.instance_status
        yield "GET", f"{one}/logs", self.logs
        yield "GET", f"{instance}/logs", self.instance_logs
        for path in (one, instance):
            yield "POST", f"{path}/start", self.start
            yield "POST", f"{path}/stop", self.stop
            yield "POST", f"{path}/restart", self.restart

    async def built_in(self, _: WorkerCall) -> Response:
        """Return the installed connectors."""
        return as_json(await asyncio.to_thread(connector_definitions, self.kind))

    async def config_definition(self, call: WorkerCall) -> Response:
        """Return the fields of an installed connector."""
        try:
            connector = await asyncio.to_thread(find, self.kind, call.name("name"))
        except InvalidConfig as exc:
            raise RequestRefused(404, str(exc)) from exc
        return as_json(definition(connector.config))

    async def reload(self, _: WorkerCall) -> None:
        """Do nothing: every request looks up the installed connectors."""

    async def register(self, call: WorkerCall) -> Response:
        """Create a connector from its config (JSON) and, unless it is built in, the part data (its package)."""
        return await self._deploy(call, self.functions.register)

    @takes(ROLLBACK)
    async def update(self, call: WorkerCall) -> Response:
        """Change a connector: same parts as for creation, plus updateOptions. Supports `rollbackOnFailure`."""
        return await self._deploy(call, self.functions.update, has_options=True)

    async def _deploy(self, call: WorkerCall, deploy: Deploy, *, has_options: bool = False) -> Response:
        name = call.function
        form = await call.form("data", self.packages)
        try:
            takes_over = has_options and updates_auth(call, json_part(form, "updateOptions") or {})
            deployment = deployment_of(form, f"{self.kind}Config", self.functions.component.title)
            rolls_back = has_options and ROLLBACK.of(call)
            deployment = replace(
                deployment, rolls_back=rolls_back, **deployer_of(call, self.functions.owners, takes_over)
            )
            version = await deploy(name, deployment)
        finally:
            upload = form.get("data", Part()).upload
            if upload is not None:
                await self.packages.discard(upload)
        await self.instances.settle(name, self.functions.find(name))
        return deployed(version, await self.functions.notice(name))

    async def deregister(self, call: WorkerCall) -> None:
        """Delete a connector."""
        name = call.function
        metadata = await self.functions.newest(name)
        await self.functions.deregister(name)
        await self.instances.settle(name, None)
        self.tables.drop(table_of(metadata))

    def get(self, call: WorkerCall) -> Response:
        """Return a connector's config without its secrets."""
        return as_json(self.functions.component.to_json(self.functions.find(call.function)))

    def list_all(self, call: WorkerCall) -> Response:
        """Return the names of a namespace's connectors."""
        return as_json(self.functions.names(call.name("tenant"), call.name("namespace")))

    async def status(self, call: WorkerCall) -> Response:
        """Return the status of all instances."""
        name = self._existing(call)
        answer = await self.instances.status(name, self.functions.component)
        return as_json(answer | auth_data(self.functions, name))

    async def instance_status(self, call: WorkerCall) -> Response:
        """Return the status of one instance."""
        name, number = self._instance(call, "status")
        return as_json(await self.instances.instance_status(name, number, self.functions.component))

    @takes(TAIL, FOLLOW, RELAYED)
    async def logs(self, call: WorkerCall) -> Response:
        """Return the last lines of all instances' logs."""
        return stream_logs(self.instances, call, self._existing(call), self.functions.component)

    @takes(TAIL, FOLLOW, RELAYED)
    async def instance_logs(self, call: WorkerCall) -> Response:
        """Return the last lines of one instance's log."""
        name, number = self._instance(call, "logs")
        return stream_logs(self.instances, call, name, self.functions.component, number)

    def _instance(self, call: WorkerCall, what: str) -> tuple[FunctionName, int]:
        name, number = self._existing(call), call.instance_id(what)
        if not 0 <= number < self.functions.find(name).functionDetails.parallelism:
            title = self.functions.component.title
            raise RequestRefused(400, f"{title} {name.name} doesn't have instance with id {number}")
        return name, number

    async def start(self, call: WorkerCall) -> None:
        """Start one or all instances."""
        await self._switch(call, "start", RUNNING)

    async def stop(self, call: WorkerCall) -> None:
        """Stop one or all instances."""
        await self._switch(call, "stop", STOPPED)

    async def _switch(self, call: WorkerCall, command: str, state: FunctionState) -> None:
        name = call.function
        await self.functions.newest(name)
        await self.functions.set_state(name, call.optional_instance_id(command), state)
        metadata = self.functions.find(name)
        await self.instances.settle(name, metadata)
        await self.instances.stopped(name, metadata)

    async def restart(self, call: WorkerCall) -> None:
        """Restart one or all instances, without changing the record."""
        number = call.optional_instance_id("restart")
        await self.instances.restart(self._existing(call), number, self.functions.component)

    def _existing(self, call: WorkerCall) -> FunctionName:
        self.functions.find(call.function)
        return call.function
