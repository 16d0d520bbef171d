"""Versions of functions, sources and sinks: list, deployment progress and rollback. Not in Pulsar."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from ...errors import RequestRefused
from ...instance.identity import table_of
from ...web.answers import as_json
from ...web.call import Query, takes
from ...wire.functions_pb2 import FunctionMetaData
from ..functions.components import FUNCTION, SINK, SOURCE, component_of
from ..functions.deployments import DeploymentStates
from ..functions.history import listed
from ..functions.instances import Instances
from ..functions.service import Functions
from ..functions.state_plan import WITH_PARAMETER
from ..functions.state_tables import StateTables
from .app import WorkerCall, WorkerRoutes
from .functions import deployed

_VERSION = Query("version", int)
_TO_VERSION = Query("toVersion", int)
_WITH_STATE = Query(WITH_PARAMETER, bool, False)


@dataclass(frozen=True, slots=True)
class DeploymentRoutes:
    """Handlers of one worker for all kinds of components."""

    functions: Functions
    instances: Instances
    states: DeploymentStates
    tables: StateTables

    def routes(self) -> WorkerRoutes:
        """Return the routes."""
        return tuple(row for kind in (FUNCTION, SOURCE, SINK) for row in self._routes_of(self.functions.of(kind)))

    async def _kept(self, metadata: FunctionMetaData) -> list[int] | None:
        if not self.tables.is_configured or component_of(metadata.functionDetails) is not FUNCTION:
            return []
        try:
            return await self.tables.kept(table_of(metadata))
        except RequestRefused:
            return None

    def _routes_of(self, functions: Functions) -> Iterator[Any]:
        one = f"{functions.component.path}/{{tenant}}/{{namespace}}/{{name}}"

        async def versions(call: WorkerCall) -> Response:
            """Return the retained versions, newest first.

            `stateKept` says whether a version's state was saved; it is null if the state store did not answer.
            """
            metadata = await functions.newest(call.function)
            kept = await self._kept(metadata)
            return as_json(
                [{**one, "stateKept": None if kept is None else one["version"] in kept} for one in listed(metadata)]
            )

        @takes(_VERSION)
        async def deployment(call: WorkerCall) -> Response:
            """Return the progress of a deployed version."""
            await functions.newest(call.function)
            return as_json(await self.states.of_version(call.function, _VERSION.of(call)))

        @takes(_TO_VERSION, _WITH_STATE)
        async def rollback(call: WorkerCall) -> Response:
            """Redeploy an earlier version as a new version; with `withState`, also restore its saved state."""
            version = _TO_VERSION.of(call)
            name = call.function
            restored = await functions.restore(name, version, with_state=_WITH_STATE.of(call))
            await self.instances.settle(name, functions.find(name))
            return deployed(restored)

        async def instance_deployment(call: WorkerCall) -> Response:
            """Return the version of an instance on this worker and whether it is running; used between workers."""
            return as_json(await self.instances.instance_deployed(call.function, call.instance_id("deployment")))

        yield "GET", f"{one}/versions", versions
        yield "GET", f"{one}/deployment", deployment
        yield "POST", f"{one}/rollback", rollback
        yield "GET", f"{one}/{{instance_id}}/deployment", instance_deployment
