"""Versions of functions, sources and sinks: which were deployed, how far the newest is, and the way back. Ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from ...errors import RequestRefused
from ...web.answers import as_json
from ...web.call import Query, takes
from ..functions.components import FUNCTION, SINK, SOURCE
from ..functions.deployments import DeploymentStates
from ..functions.history import listed
from ..functions.instances import Instances
from ..functions.service import Functions
from .app import WorkerCall, WorkerRoutes
from .functions import deployed

_VERSION = Query("version", int)
_TO_VERSION = Query("toVersion", int)
_WITH_STATE = Query("withState", bool, False)


@dataclass(frozen=True, slots=True)
class DeploymentRoutes:
    """Handlers of one worker, for every kind of component."""

    functions: Functions
    instances: Instances
    states: DeploymentStates

    def routes(self) -> WorkerRoutes:
        """Return the routes."""
        return tuple(row for kind in (FUNCTION, SOURCE, SINK) for row in self._routes_of(self.functions.of(kind)))

    def _routes_of(self, functions: Functions) -> Iterator[Any]:
        one = f"{functions.component.path}/{{tenant}}/{{namespace}}/{{name}}"

        async def versions(call: WorkerCall) -> Response:
            """Return the versions that were deployed and are kept, the newest first."""
            return as_json(listed(await functions.newest(call.function)))

        @takes(_VERSION)
        async def deployment(call: WorkerCall) -> Response:
            """Return how far a version is that was deployed."""
            await functions.newest(call.function)
            return as_json(await self.states.of_version(call.function, _VERSION.of(call)))

        @takes(_TO_VERSION, _WITH_STATE)
        async def rollback(call: WorkerCall) -> Response:
            """Deploy an earlier version again, as a new version."""
            version = _TO_VERSION.of(call)
            if _WITH_STATE.of(call):
                raise RequestRefused(
                    400, "withState: the state store keeps no earlier versions of a function's state, so there is"
                    " nothing to go back to; leave it out, and the state stays as it is",
                )  # fmt: skip
            name = call.function
            restored = await functions.restore(name, version)
            await self.instances.settle(name, functions.find(name))
            return deployed(restored)

        async def instance_deployment(call: WorkerCall) -> Response:
            """Return which version of an instance this worker runs, and whether it does; one worker asks another."""
            return as_json(await self.instances.instance_deployed(call.function, call.instance_id("deployment")))

        yield "GET", f"{one}/versions", versions
        yield "GET", f"{one}/deployment", deployment
        yield "POST", f"{one}/rollback", rollback
        yield "GET", f"{one}/{{instance_id}}/deployment", instance_deployment
