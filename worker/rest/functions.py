"""`/admin/v3/functions`: deployment, inspection and control of functions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from google.protobuf.message import DecodeError
from starlette.background import BackgroundTask
from starlette.responses import FileResponse, Response

from ...errors import PackageError, RequestRefused
from ...instance.identity import table_of
from ...metadata.functions import FunctionRequest
from ...metadata.packages import PackageStore
from ...web.answers import as_json
from ...web.authenticated import METHOD
from ...web.call import Query, takes
from ...web.deployments import NOTICE_HEADER, ROLLBACK_PARAMETER, VERSION_HEADER
from ...wire.functions_pb2 import RUNNING, STOPPED, FunctionMetaData, FunctionState
from ...wire.printable import one_line
from ...wire.strict_json import NotJson, read_json
from ..cluster.hand_over import REQUEST_ID_HEADER
from ..functions.components import FUNCTION
from ..functions.cursor_reset import CursorReset, read_target
from ..functions.definitions import KINDS, connector_definitions
from ..functions.instances import Instances
from ..functions.overview import overview
from ..functions.owners import Deployer, Owners
from ..functions.package_intake import is_built_in, package_id
from ..functions.prerequisites import is_spark
from ..functions.runs import Runs
from ..functions.service import Deployment, FunctionName, Functions
from ..functions.state_plan import KEEP_PARAMETER, waits_for
from ..functions.state_tables import StateTables
from ..functions.status_json import with_reason
from ..functions.trigger import Trigger
from .app import ONE_FUNCTION, WorkerCall, WorkerRoutes
from .logs import FOLLOW, RELAYED, TAIL, stream_logs
from .multipart import Form, Part, json_part

NO_OUTPUT_HEADER = "Magnetar-No-Output"
"""Header with the reason why a trigger response has no output. Not in Pulsar."""
TARGET_BYTES_MAX = 4096
"""Maximum size of a cursor reset's request body in bytes."""
_TRIGGER_PARTS = {"data", "dataStream", "topic"}
_BASE = "/admin/v3/functions"
_NO_WAIT = Query("noWait", bool, False)
_KEEP_STATE = Query(KEEP_PARAMETER, bool, False)
_RUN_ID = Query("runId", str)
_PATH = Query("path", str, "")
_STATES = Query("states", bool, False)
_HERE = Query("here", bool, False)
Deploy = Callable[[FunctionName, Deployment], Awaitable[int]]
"""Creates or changes a function and returns the version."""
ROLLBACK = Query(ROLLBACK_PARAMETER, bool, False)


@dataclass(frozen=True, slots=True)
class FunctionsRoutes:
    """Handlers of one worker."""

    functions: Functions
    instances: Instances
    packages: PackageStore
    triggers: Trigger
    tables: StateTables
    runs: Runs
    cursors: CursorReset

    def routes(self) -> WorkerRoutes:
        """Return the routes."""
        one = ONE_FUNCTION
        instance = f"{one}/{{instance_id}}"
        commands = {"start": self.start, "stop": self.stop, "restart": self.restart}
        return (
            ("GET", f"{_BASE}/connectors", self.connectors),
            ("GET", f"{_BASE}/builtins", self.list_nothing),
            ("POST", f"{_BASE}/builtins/reload", self.reload_nothing),
            ("POST", f"{_BASE}/upload", self.upload),
            ("GET", f"{_BASE}/download", self.download_path),
            ("PUT", f"{_BASE}/leader/{{tenant}}/{{namespace}}/{{name}}", self.decide),
            ("GET", f"{_BASE}/{{tenant}}/{{namespace}}", self.list_functions),
            ("POST", one, self.register),
            ("PUT", one, self.update),
            ("DELETE", one, self.deregister),
            ("GET", one, self.get),
            ("GET", f"{one}/status", self.status),
            ("GET", f"{one}/stats", self.stats),
            ("GET", f"{one}/logs", self.logs),
            ("GET", f"{one}/download", self.download),
            ("GET", f"{one}/ended", self.ended),
            ("GET", f"{one}/runs", self.latest_runs),
            ("POST", f"{one}/trigger", self.trigger),
            ("POST", f"{one}/reset-cursor", self.reset_cursor),
            ("POST", f"{instance}/trigger", self.begin_run),
            ("GET", f"{instance}/status", self.instance_status),
            ("GET", f"{instance}/stats", self.instance_stats),
            ("GET", f"{instance}/logs", self.instance_logs),
            *(("POST", f"{path}/{name}", handler) for path in (one, instance) for name, handler in commands.items()),
        )

    async def register(self, call: WorkerCall) -> Response:
        """Create a function from the parts `functionConfig` (JSON) and `data` (its package)."""
        return await self._deploy(call, self.functions.register)

    @takes(ROLLBACK, _KEEP_STATE)
    async def update(self, call: WorkerCall) -> Response:
        """Change a function: same parts as for creation, plus updateOptions.

        With `rollbackOnFailure`, the previous version is restored if the new one fails to start. With `keepState`, the
        previous version's state is saved for a rollback with `withState`.
        """
        return await self._deploy(call, self.functions.update, has_options=True)

    async def _deploy(self, call: WorkerCall, deploy: Deploy, *, has_options: bool = False) -> Response:
        function = call.function
        form = await call.form("data", self.packages)
        try:
            takes_over = has_options and updates_auth(call, json_part(form, "updateOptions") or {})
            deployment = replace(
                deployment_of(form, "functionConfig", "Function"),
                **deployer_of(call, self.functions.owners, takes_over),
            )
            if has_options:
                deployment = replace(deployment, rolls_back=ROLLBACK.of(call), keeps_state=_KEEP_STATE.of(call))
            version = await deploy(function, deployment)
        finally:
            upload = form.get("data", Part()).upload
            if upload is not None:
                await self.packages.discard(upload)
        await self.instances.settle(function, self.functions.find(function))
        return deployed(version)

    async def deregister(self, call: WorkerCall) -> None:
        """Delete a function."""
        function = call.function
        metadata = await self.functions.newest(function)
        await self.functions.deregister(function)
        await self.instances.settle(function, None)
        self.tables.drop(table_of(metadata))

    async def get(self, call: WorkerCall) -> Response:
        """Return a function's config."""
        return as_json(self.functions.component.to_json(self.functions.find(call.function)))

    @takes(_STATES, _HERE)
    async def list_functions(self, call: WorkerCall) -> Response:
        """Return the names of a namespace's functions or, with `states` (not in Pulsar), their states.

        With both `states` and `here`, return only whether each instance on this worker is running; used between
        workers.
        """
        tenant, namespace = call.name("tenant"), call.name("namespace")
        names = self.functions.names(tenant, namespace)
        if not _STATES.of(call):
            return as_json(names)
        whole = [FunctionName(tenant, namespace, name) for name in names]
        if _HERE.of(call):
            return as_json(await self.instances.statuses_here(whole))
        statuses = await self.instances.statuses(tenant, namespace, whole)
        records = {name.name: metadata for name in whole if (metadata := self.functions.get(name)) is not None}
        return as_json(overview(records, statuses))

    def _existing(self, call: WorkerCall) -> FunctionName:
        """Return the function in the path; raise 404 if it does not exist."""
        self.functions.find(call.function)
        return call.function

    def _instance(self, call: WorkerCall, what: str) -> tuple[FunctionName, int]:
        """Return the function and instance number in the path; raise if the instance does not exist."""
        function = call.function
        parallelism = self.functions.find(function).functionDetails.parallelism
        number = call.instance_id(what)
        if not 0 <= number < parallelism:
            raise RequestRefused(400, f"Function {function.name} doesn't have instance with id {number}")
        return function, number

    async def status(self, call: WorkerCall) -> Response:
        """Return the status of all instances."""
        name = self._existing(call)
        answer = with_reason(await self.instances.status(name), waits_for(self.functions.find(name)))
        return as_json(answer | auth_data(self.functions, name))

    async def stats(self, call: WorkerCall) -> Response:
        """Return the statistics of all instances."""
        return as_json(await self.instances.stats(self._existing(call)))

    async def instance_status(self, call: WorkerCall) -> Response:
        """Return the status of one instance."""
        return as_json(await self.instances.instance_status(*self._instance(call, "status")))

    async def instance_stats(self, call: WorkerCall) -> Response:
        """Return the statistics of one instance."""
        return as_json(await self.instances.instance_stats(*self._instance(call, "stats")))

    async def start(self, call: WorkerCall) -> None:
        """Start one or all instances."""
        await self._switch(call, "start", RUNNING)

    async def stop(self, call: WorkerCall) -> None:
        """Stop one or all instances."""
        await self._switch(call, "stop", STOPPED)

    async def _switch(self, call: WorkerCall, command: str, state: FunctionState) -> None:
        function = call.function
        await self.functions.newest(function)
        await self.functions.set_state(function, call.optional_instance_id(command), state)
        metadata = self.functions.find(function)
        await self.instances.settle(function, metadata)
        await self.instances.stopped(function, metadata)

    async def restart(self, call: WorkerCall) -> None:
        """Restart one or all instances, without changing the record."""
        await self.instances.restart(self._existing(call), call.optional_instance_id("restart"))

    @takes(_NO_WAIT)
    async def trigger(self, call: WorkerCall) -> Response:
        """Send the part `data` (or `dataStream`) to the function and return its output.

        For a Spark function, which takes no data, start a run instead; the response is the record of the finished run
        or, with `noWait`, the run id immediately.
        """
        function, no_wait = call.function, _NO_WAIT.of(call)
        name = function.name
        metadata = self.functions.find(function)
        if is_spark(metadata.functionDetails):
            if "content-type" in call.request.headers and (await call.form()).keys() & _TRIGGER_PARTS:
                raise RequestRefused(
                    400,
                    f"Function {name} is a Spark function, which processes the backlog of its inputs: trigger it"
                    " without data",
                )
            run_id = await self.runs.begin(function)
            return as_json({"runId": run_id} if no_wait else await self.runs.wait(function, run_id))
        if no_wait:
            raise RequestRefused(400, f"noWait is only for Spark functions, and Function {name} is not one: omit it")
        if "content-type" not in call.request.headers:
            raise RequestRefused(
                400,
                f"Function {name} processes single messages: send one as trigger data; only Spark functions are"
                " triggered without data",
            )
        form = await call.form()
        part = form.get("data") or form.get("dataStream")
        if part is None:
            raise RequestRefused(400, "Trigger Data is not provided")
        topic = form["topic"].content.decode("utf-8", "replace") if "topic" in form else None
        sender = sender_of(call, self.functions.owners)
        read_status = partial(self.instances.status, function)
        answer = await self.triggers.run(metadata, (part.content, topic), read_status, sender)
        if answer.output is None:
            return Response(status_code=204, headers={NO_OUTPUT_HEADER: answer.reason})
        return Response(answer.output, media_type="application/json")

    @takes(_RUN_ID)
    async def begin_run(self, call: WorkerCall) -> None:
        """Start a run requested by another worker; only on the worker that runs the function."""
        run_id = _RUN_ID.of(call)
        await self.instances.begin_run(self._existing(call), call.instance_id("trigger"), run_id)

    async def latest_runs(self, call: WorkerCall) -> Response:
        """Return the latest runs of a Spark function, newest first. Not in Pulsar."""
        name = self._existing(call)
        metadata = self.functions.find(name)
        if not is_spark(metadata.functionDetails):
            raise RequestRefused(400, f"Function {name.name} has no runs: only Spark functions do")
        return as_json(await self.runs.latest(name, metadata))

    async def ended(self, call: WorkerCall) -> None:
        """Respond once no instance of a stopped function is running on this worker; used between workers."""
        await self.instances.ended_here(call.function)

    async def connectors(self, _: WorkerCall) -> Response:
        """Return the installed connectors."""
        return as_json(await asyncio.to_thread(connector_definitions, *KINDS))

    async def list_nothing(self, _: WorkerCall) -> Response:
        """Return an empty list: there are no built-in functions yet."""
        return as_json([])

    async def reload_nothing(self, _: WorkerCall) -> None:
        """Do nothing: there are no built-in functions."""

    async def decide(self, call: WorkerCall) -> None:
        """Decide a change received by another worker; only on the leader."""
        form = await call.form()
        if "functionMetaData" not in form:
            raise RequestRefused(400, "Corrupt Function MetaData: the part functionMetaData is missing")
        try:
            metadata = FunctionMetaData.FromString(form["functionMetaData"].content)
        except DecodeError as exc:
            raise RequestRefused(400, "Corrupt Function MetaData") from exc
        details = metadata.functionDetails
        if FunctionName(details.tenant, details.namespace, details.name) != call.function:
            raise RequestRefused(400, "Corrupt Function MetaData: the path names another function")
        request_id = call.request.headers.get(REQUEST_ID_HEADER)
        if not request_id:
            raise RequestRefused(400, f"Corrupt Function MetaData: the header {REQUEST_ID_HEADER} is missing")
        is_deletion = form.get("delete", Part()).content == b"true"
        await self.functions.decide_here(FunctionRequest(metadata, request_id, is_deletion))

    async def upload(self, _: WorkerCall) -> Response:
        """Reject an upload, because packages are stored by content, not under a path chosen by the client."""
        raise RequestRefused(501, "uploading to a path is not supported: send the package with create or update")

    @takes(_PATH)
    async def download_path(self, _: WorkerCall) -> Response:
        """Return a package by the path in a function's record."""
        raise RequestRefused(501, "downloading by path is not supported: use tenant/namespace/name/download")

    async def download(self, call: WorkerCall) -> Response:
        """Return a function's package unchanged."""
        metadata = self.functions.find(call.function)
        if call.request.query_params.get("transform-function") == "true":
            if not metadata.HasField("transformFunctionPackageLocation"):
                raise RequestRefused(400, f"Function {call.function.name} has no transform function")
            location = metadata.transformFunctionPackageLocation
        else:
            location = metadata.packageLocation
        if is_built_in(location):
            raise RequestRefused(400, f"Function {call.function.name} is a SQL statement and has no package")
        try:
            path = await self.packages.assemble(package_id(location))
        except PackageError as exc:
            raise RequestRefused(500, str(exc)) from exc
        remove = BackgroundTask(asyncio.to_thread, path.unlink, missing_ok=True)
        return FileResponse(path, media_type="application/json", background=remove)

    async def reset_cursor(self, call: WorkerCall) -> None:
        """Stop a function, move its input cursors to the target in the body, and restart it. Not in Pulsar."""
        content = await call.body_bytes(TARGET_BYTES_MAX)
        try:
            target = read_target(read_json(content))
        except NotJson as exc:
            raise RequestRefused(400, f"the request is not JSON: {exc}") from exc
        await self.cursors.run(call.function, target)

    @takes(TAIL, FOLLOW, RELAYED)
    async def logs(self, call: WorkerCall) -> Response:
        """Return the last lines of all instances' logs."""
        return stream_logs(self.instances, call, self._existing(call), FUNCTION)

    @takes(TAIL, FOLLOW, RELAYED)
    async def instance_logs(self, call: WorkerCall) -> Response:
        """Return the last lines of one instance's log."""
        function, number = self._instance(call, "logs")
        return stream_logs(self.instances, call, function, FUNCTION, number)


def updates_auth(call: WorkerCall, options: Mapping[str, Any]) -> bool:
    """Return whether an update changes the owner to its sender; reject options that would have no effect."""
    for name, value in options.items():
        if name != "updateAuthData":
            raise RequestRefused(400, f"updateOptions: unknown field {name[:80]}: expected updateAuthData")
        if value not in (None, False, True):
            raise RequestRefused(400, "updateAuthData: expected true or false")
        if value and call.roles is None:
            raise RequestRefused(400, "updateAuthData requires authentication, which is not enabled: omit it")
    return bool(options.get("updateAuthData"))


def deployer_of(call: WorkerCall, owners: Owners, takes_over: bool) -> dict[str, Any]:
    """Return the fields of a deployment that describe its sender."""
    return {"deployer": sender_of(call, owners), "updates_auth": takes_over}


def sender_of(call: WorkerCall, owners: Owners) -> Deployer | None:
    """Return the sender of a request, or None without authentication."""
    method: str = call.request.scope.get(METHOD, "")
    return owners.deployer(call.roles, method, call.request.headers.get("authorization", ""))


def auth_data(functions: Functions, name: FunctionName) -> dict[str, int]:
    """Return the status field for the expiry of a function's stored credentials; empty if they do not expire."""
    expires_s = functions.owners.expires_at(functions.find(name))
    return {} if expires_s is None else {"authDataExpiresMs": int(expires_s * 1000)}


def deployed(version: int, notice: str = "") -> Response:
    """Return 204 as in Pulsar, with the deployed version and a notice in headers."""
    headers = {VERSION_HEADER: str(version)}
    if notice:
        headers[NOTICE_HEADER] = one_line(notice).encode("ascii", "backslashreplace").decode()
    return Response(status_code=204, headers=headers)


def deployment_of(form: Form, part: str, title: str) -> Deployment:
    """Return the deployment from a form whose part ``part`` contains the config."""
    config = json_part(form, part, title)
    if config is None:
        raise RequestRefused(400, f"{title} config is not provided")
    data = form.get("data", Part())
    url = form["url"].content.decode("utf-8", "replace").strip() if "url" in form else ""
    return Deployment(config, data.upload, data.file_name, url or None)
