"""`/admin/v3/functions`: deploying, asking and steering functions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, JSONResponse, Response, StreamingResponse
from google.protobuf.message import DecodeError
from starlette.background import BackgroundTask

from ...errors import PackageError, RequestRefused
from ...metadata.function_table import FunctionRequest
from ...metadata.packages import PackageStore
from ...state.naming import table_of
from ...wire.functions_pb2 import FunctionMetaData
from ..cluster.hand_over import REQUEST_ID_HEADER
from ..functions.instances import Instances
from ..functions.log_stream import merged
from ..functions.runs import Runs
from ..functions.service import Deployment, FunctionName, Functions, package_id
from ..functions.spark_readiness import is_spark
from ..functions.state_tables import StateTables
from ..functions.trigger import Trigger
from .answers import finite, nothing
from .multipart import Form, Part, json_part, read_form

_TRIGGER_PARTS = {"data", "dataStream", "topic"}
COMMANDS = ("start", "stop", "restart")


class FunctionsRoutes:
    """The handlers; made once per worker."""

    def __init__(
        self,
        functions: Functions,
        instances: Instances,
        packages: PackageStore,
        trigger: Trigger,
        tables: StateTables,
        runs: Runs,
    ) -> None:
        self._functions = functions
        self._tables = tables
        self._instances = instances
        self._packages = packages
        self._trigger = trigger
        self._runs = runs

    def router(self) -> APIRouter:
        """Return the routes."""
        router = APIRouter(prefix="/admin/v3/functions", tags=["functions"])
        one = "/{tenant}/{namespace}/{name}"
        for method, path, handler in (
            ("GET", "/connectors", self.list_nothing),
            ("GET", "/builtins", self.list_nothing),
            ("POST", "/builtins/reload", self.reload_nothing),
            ("POST", "/upload", self.upload),
            ("GET", "/download", self.download_path),
            ("PUT", "/leader/{tenant}/{namespace}/{name}", self.decide),
            ("GET", "/{tenant}/{namespace}", self.list_functions),
            ("POST", one, self.register),
            ("PUT", one, self.update),
            ("DELETE", one, self.deregister),
            ("GET", one, self.get),
            ("GET", one + "/status", self.status),
            ("GET", one + "/stats", self.stats),
            ("GET", one + "/logs", self.logs),
            ("GET", one + "/download", self.download),
            ("POST", one + "/trigger", self.trigger),
            ("POST", one + "/{instance_id}/trigger", self.begin_run),
            ("GET", one + "/{instance_id}/status", self.instance_status),
            ("GET", one + "/{instance_id}/stats", self.instance_stats),
            ("GET", one + "/{instance_id}/logs", self.instance_logs),
        ):
            router.add_api_route(path, handler, methods=[method], response_model=None)
        for command in COMMANDS:
            handler = getattr(self, command)
            router.add_api_route(f"{one}/{command}", handler, methods=["POST"], response_model=None)
            router.add_api_route(f"{one}/{{instance_id}}/{command}", handler, methods=["POST"], response_model=None)
        return router

    async def register(self, request: Request, tenant: str, namespace: str, name: str) -> Response:
        """Create a function from the parts functionConfig (JSON) and data (its package)."""
        function = FunctionName(tenant, namespace, name)
        form = await read_form(request, "data", self._packages)
        try:
            await self._functions.register(function, _deployment(form))
        finally:
            await self._discard(form)
        await self._instances.settle(function, self._functions.find(function))
        return nothing()

    async def update(self, request: Request, tenant: str, namespace: str, name: str) -> Response:
        """Change a function; parts as at its creation, plus updateOptions."""
        function = FunctionName(tenant, namespace, name)
        form = await read_form(request, "data", self._packages)
        try:
            _check_options(json_part(form, "updateOptions") or {})
            await self._functions.update(function, _deployment(form))
        finally:
            await self._discard(form)
        await self._instances.settle(function, self._functions.find(function))
        return nothing()

    async def _discard(self, form: Form) -> None:
        upload = form.get("data", Part()).upload
        if upload is not None:
            await self._packages.discard(upload)

    async def deregister(self, tenant: str, namespace: str, name: str) -> Response:
        """Delete a function."""
        function = FunctionName(tenant, namespace, name)
        metadata = await self._functions.newest(function)
        await self._functions.deregister(function)
        await self._instances.settle(function, None)
        self._tables.drop(table_of(metadata))
        return nothing()

    async def get(self, tenant: str, namespace: str, name: str) -> Response:
        """Return a function's config."""
        return JSONResponse(finite(self._functions.describe(FunctionName(tenant, namespace, name))))

    async def list_functions(self, tenant: str, namespace: str) -> Response:
        """Return the names of a namespace's functions."""
        return JSONResponse(self._functions.names(tenant, namespace))

    async def status(self, tenant: str, namespace: str, name: str) -> Response:
        """Return how all instances are."""
        function = FunctionName(tenant, namespace, name)
        self._functions.find(function)
        return JSONResponse(finite(await self._instances.status(function)))

    async def stats(self, tenant: str, namespace: str, name: str) -> Response:
        """Return the counts of all instances."""
        function = FunctionName(tenant, namespace, name)
        self._functions.find(function)
        return JSONResponse(finite(await self._instances.stats(function)))

    async def instance_status(self, tenant: str, namespace: str, name: str, instance_id: str) -> Response:
        """Return how one instance is."""
        function = FunctionName(tenant, namespace, name)
        metadata = self._functions.find(function)
        return JSONResponse(
            finite(await self._instances.instance_status(function, metadata, _number(instance_id, "status")))
        )

    async def instance_stats(self, tenant: str, namespace: str, name: str, instance_id: str) -> Response:
        """Return the counts of one instance."""
        function = FunctionName(tenant, namespace, name)
        metadata = self._functions.find(function)
        return JSONResponse(
            finite(await self._instances.instance_stats(function, metadata, _number(instance_id, "stats")))
        )

    async def start(self, tenant: str, namespace: str, name: str, instance_id: str | None = None) -> Response:
        """Start one instance or all."""
        return await self._steer(FunctionName(tenant, namespace, name), instance_id, "start")

    async def stop(self, tenant: str, namespace: str, name: str, instance_id: str | None = None) -> Response:
        """Stop one instance or all."""
        return await self._steer(FunctionName(tenant, namespace, name), instance_id, "stop")

    async def _steer(self, function: FunctionName, instance_id: str | None, command: str) -> Response:
        await self._functions.newest(function)
        number = None if instance_id is None else _number(instance_id, command)
        await (self._functions.start if command == "start" else self._functions.stop)(function, number)
        metadata = self._functions.find(function)
        await self._instances.settle(function, metadata)
        await self._instances.stopped(function, metadata)
        return nothing()

    async def restart(self, tenant: str, namespace: str, name: str, instance_id: str | None = None) -> Response:
        """Restart one instance or all; nothing is stored."""
        function = FunctionName(tenant, namespace, name)
        self._functions.find(function)
        await self._instances.restart(function, None if instance_id is None else _number(instance_id, "restart"))
        return nothing()

    async def trigger(
        self,
        request: Request,
        tenant: str,
        namespace: str,
        name: str,
        noWait: bool = False,
    ) -> Response:
        """Send the part data (or dataStream) through the function and return what comes out.

        A function that works in runs begins one instead, and takes no data; returned is the record of the run when it
        has ended, with `noWait` its id at once.
        """
        function = FunctionName(tenant, namespace, name)
        metadata = self._functions.find(function)
        if is_spark(metadata.functionDetails):
            if "content-type" in request.headers and (await read_form(request)).keys() & _TRIGGER_PARTS:
                raise RequestRefused(
                    400, f"Function {name} runs by Spark, over the backlog of its inputs: trigger it without data"
                )
            run_id = await self._runs.begin(function)
            return JSONResponse(
                {"runId": run_id} if noWait else finite(await self._runs.wait(function, metadata, run_id))
            )
        if noWait:
            raise RequestRefused(400, f"noWait: Function {name} does not work in runs; leave it out")
        if "content-type" not in request.headers:
            raise RequestRefused(
                400, f"Function {name} works message by message: trigger it with one; only spark functions take none"
            )
        form = await read_form(request)
        part = form.get("data") or form.get("dataStream")
        if part is None:
            raise RequestRefused(400, "Trigger Data is not provided")
        topic = form["topic"].content.decode("utf-8", "replace") if "topic" in form else None
        output = await self._trigger.run(metadata, part.content, topic)
        return nothing() if output is None else Response(output, media_type="application/json")

    async def begin_run(self, tenant: str, namespace: str, name: str, instance_id: str, runId: str) -> Response:
        """Begin a run that another worker was asked for; only on the worker that has the function."""
        function = FunctionName(tenant, namespace, name)
        self._functions.find(function)
        await self._instances.begin_run(function, _number(instance_id, "trigger"), runId)
        return nothing()

    async def list_nothing(self) -> Response:
        """Return the built-in functions and connectors: none yet."""
        return JSONResponse([])

    async def reload_nothing(self) -> Response:
        """Look for built-in functions again: there are none."""
        return nothing()

    async def decide(self, request: Request, tenant: str, namespace: str, name: str) -> Response:
        """Decide a change that another worker took in; only on the leader."""
        form = await read_form(request)
        if "functionMetaData" not in form:
            raise RequestRefused(400, "Corrupt Function MetaData: the part functionMetaData is missing")
        try:
            metadata = FunctionMetaData.FromString(form["functionMetaData"].content)
        except DecodeError as exc:
            raise RequestRefused(400, "Corrupt Function MetaData") from exc
        details = metadata.functionDetails
        if (details.tenant, details.namespace, details.name) != (tenant, namespace, name):
            raise RequestRefused(400, "Corrupt Function MetaData: the path names another function")
        request_id = request.headers.get(REQUEST_ID_HEADER)
        if not request_id:
            raise RequestRefused(400, f"Corrupt Function MetaData: the header {REQUEST_ID_HEADER} is missing")
        is_deletion = form.get("delete", Part()).content == b"true"
        await self._functions.decide_here(FunctionRequest(metadata, request_id, is_deletion))
        return nothing()

    async def upload(self) -> Response:
        """Packages are kept by what they hold, not under a path of the client's choice."""
        raise RequestRefused(501, "uploading to a path is not supported; send the package with create or update")

    async def download_path(self, path: str = "") -> Response:
        """Return a package by the path in a function's record."""
        raise RequestRefused(501, "downloading by path is not supported; use tenant/namespace/name/download")

    async def download(self, request: Request, tenant: str, namespace: str, name: str) -> Response:
        """Return a function's package as it was uploaded."""
        metadata = self._functions.find(FunctionName(tenant, namespace, name))
        if request.query_params.get("transform-function") == "true":
            raise RequestRefused(400, f"Function {name} has no transform function")
        try:
            path = await self._packages.assemble(package_id(metadata.packageLocation))
        except PackageError as exc:
            raise RequestRefused(500, str(exc)) from exc
        remove = BackgroundTask(asyncio.to_thread, path.unlink, missing_ok=True)
        return FileResponse(path, media_type="application/json", background=remove)

    async def logs(self, tenant: str, namespace: str, name: str, tail: int = 100, follow: bool = False) -> Response:
        """Return the last lines of all instances' logs."""
        function = FunctionName(tenant, namespace, name)
        self._functions.find(function)
        numbers = self._instances.assigned(function)
        if not numbers:
            raise RequestRefused(400, f"{function} has not been assigned yet")
        return await self._stream(function, numbers, tail, is_following=follow)

    async def instance_logs(
        self, tenant: str, namespace: str, name: str, instance_id: str, tail: int = 100, follow: bool = False
    ) -> Response:
        """Return the last lines of one instance's log."""
        function = FunctionName(tenant, namespace, name)
        metadata = self._functions.find(function)
        number = _number(instance_id, "logs")
        if not 0 <= number < metadata.functionDetails.parallelism:
            raise RequestRefused(400, f"Function {name} doesn't have instance with id {number}")
        return await self._stream(function, [number], tail, is_following=follow)

    async def _stream(self, name: FunctionName, numbers: list[int], tail: int, *, is_following: bool) -> Response:
        if tail < 0:
            raise RequestRefused(400, f"tail {tail} must be 0 or more lines")
        streams = []
        for number in numbers:
            prefix = b"[%d] " % number if len(numbers) > 1 else b""
            streams.append(self._instances.read_log(name, number, tail, prefix, is_following=is_following))
        return StreamingResponse(merged(streams), media_type="text/plain; charset=utf-8")


def _check_options(options: Mapping[str, Any]) -> None:
    """Refuse what an update is asked for beside its config: there is nothing that it could do."""
    for name, value in options.items():
        if name != "updateAuthData":
            raise RequestRefused(400, f"updateOptions: unknown field {name[:80]}; known is updateAuthData")
        if value not in (None, False):
            raise RequestRefused(
                400, "updateAuthData: there is no authentication here whose data could be updated; leave it out"
            )


def _deployment(form: Form) -> Deployment:
    config = json_part(form, "functionConfig")
    if config is None:
        raise RequestRefused(400, "Function config is not provided")
    data = form.get("data", Part())
    url = form["url"].content.decode("utf-8", "replace").strip() if "url" in form else ""
    return Deployment(config, data.upload, data.file_name, url or None)


def _number(text: str, what: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise RequestRefused(400, f"{what}: instance id {text!r} is not a number") from None
