"""Deploys and manages functions from Python: ``client.functions.deploy(fn, inputs=…, output=…)``.

Design: the function is packaged on the calling thread, because its objects may belong to that thread; the rest uses the
same REST interface as all tools. `AsyncFunctions` is the asyncio API, `Functions` the blocking one.
"""

from __future__ import annotations

import asyncio
import functools
import json
import math
from collections.abc import Callable, Coroutine, Sequence
from time import monotonic
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from ...errors import ConnectionLost, InvalidConfig, OperationTimeout, RequestRefused
from ...web.client import Parts, segment, with_query
from ...web.deployments import (
    ROLLBACK_PARAMETER,
    VERSION_HEADER,
    WAIT_TIMEOUT_S,
    is_up,
    next_pause,
    not_up_in_time,
)
from .deployment import Package, function_config, own_name, pack
from .rest import ANSWER_TIMEOUT_S, RestClient

DEFAULT_TENANT = "public"
DEFAULT_NAMESPACE = "default"
_NOT_FOUND = 404
_SERVER_ERRORS = 500
_P = ParamSpec("_P")
_T = TypeVar("_T")

Name = str | Callable[..., Any]
"""Reference to a function: its name, tenant/namespace/name, or the function object deployed under its own name."""


class Processor(Protocol):
    """An object with a `process` method, which `deploy` accepts like a function."""

    def process(self, value: Any, context: Any, /) -> Any:
        """Return the output."""


class _Prepared(NamedTuple):
    path: str
    parts: Parts
    wait_s: float | None
    """How long to wait until the function runs, in seconds; None means not to wait."""
    rolls_back: bool


def _path(name: Name, tenant: str | None, namespace: str | None) -> str:
    """Return the REST path of a function, given its name, tenant/namespace/name, or the deployed object."""
    text = name if isinstance(name, str) else own_name(name)
    if not text:
        raise InvalidConfig(f"{name!r:.80} has no name: pass the function name as a string")
    parts = text.split("/")
    if len(parts) == 3 and tenant is None and namespace is None:
        tenant, namespace, text = parts
    elif len(parts) != 1:
        raise InvalidConfig(
            f"invalid name {text!r}: expected name, or tenant/namespace/name without tenant= and namespace="
        )
    return f"{_namespace_path(tenant, namespace)}/{segment(text)}"


def _namespace_path(tenant: str | None, namespace: str | None) -> str:
    return f"/admin/v3/functions/{segment(tenant or DEFAULT_TENANT)}/{segment(namespace or DEFAULT_NAMESPACE)}"


def _prepare(
    function: Callable[..., Any] | Processor | None,
    inputs: str | Sequence[str] | None,
    output: str | None,
    settings: dict[str, Any],
) -> _Prepared:
    name, tenant, namespace = (settings.pop(key, None) for key in ("name", "tenant", "namespace"))
    is_waiting, wait_s = settings.pop("wait", True), settings.pop("wait_timeout_s", WAIT_TIMEOUT_S)
    if not isinstance(wait_s, int | float) or isinstance(wait_s, bool) or not 0 <= wait_s < math.inf:
        raise InvalidConfig(
            f"invalid wait_timeout_s {wait_s!r}: expected a number of seconds >= 0, or wait=False to not wait"
        )
    rolls_back = bool(settings.pop("rollback_on_failure", True))
    statement = settings.get("sql")
    if function is None and statement is None:
        raise InvalidConfig("no function to deploy: pass a function, or sql='SELECT …' with runtime='spark'")
    if function is not None and statement is not None:
        raise InvalidConfig("function and sql are mutually exclusive")
    if function is None and not name:
        raise InvalidConfig("a SQL statement has no name: pass deploy(sql=…, name='…')")
    if not name and own_name(function) is None:
        raise InvalidConfig(f"{function!r:.80} has no name: pass deploy(…, name='…')")
    path = _path(name or own_name(function) or "", tenant, namespace)
    config = json.loads(function_config(inputs, output, settings))
    if function is None:
        parts: Parts = {"functionConfig": (None, json.dumps(config), "application/json")}
        return _Prepared(path, parts, wait_s if is_waiting else None, rolls_back)
    package: Package = pack(function, name or "")
    parts = {
        "functionConfig": (None, json.dumps({**config, "className": package.class_name}), "application/json"),
        "data": (f"{package.class_name}.zip", package.content, "application/octet-stream"),
    }
    return _Prepared(path, parts, wait_s if is_waiting else None, rolls_back)


class AsyncFunctions:
    """The functions of a cluster; created by `AsyncClient.functions`. Methods accept three forms of function names.

    These are ``"name"``, with ``tenant`` and ``namespace`` unless they are public and default;
    ``"tenant/namespace/name"``; or the function object itself, if it was deployed under its own name.

    Cancellation: a request in flight may still be executed.

    Raises:
        RequestRefused: the cluster rejected the request; contains the reason and status (404 for an unknown function).
        ConnectionLost, OperationTimeout: no worker responded.
    """

    def __init__(self, rest: Callable[[], RestClient]) -> None:
        """Create the API; ``rest`` is called when a connection is needed."""
        self._rest = rest

    async def deploy(
        self,
        function: Callable[..., Any] | Processor | None = None,
        *,
        inputs: str | Sequence[str] | None = None,
        output: str | None = None,
        **settings: Any,
    ) -> dict[str, Any]:
        """Create a function, or update an existing one with new code and settings; unspecified settings are kept.

        Args:
            function: a function, a lambda, or a class or object with ``process(self, input, context)``. Objects that it
                refers to are sent with it, except for installed packages, which must be installed on the workers. If
                None, ``sql`` and ``name`` are required: the function is a SQL statement over its inputs as views.
            inputs: input topics, or a single one.
            output: output topic.
            **settings: ``name``, ``tenant``, ``namespace``, ``runtime`` (``"process"``, ``"thread"`` or
                ``"spark"``), ``subscription``, and every field of FunctionConfig: ``parallelism``, ``user_config``,
                ``processing_guarantees``, ``subscription_position``, ``log_topic``, … Options of the deployment are
                ``wait`` (default True: wait until all instances run), ``wait_timeout_s`` (default 120), and
                ``rollback_on_failure`` (True restores the previous version if the new one does not start).

        Returns: the function's config, as returned by `get`.

        Raises:
            UnpicklableFunction: the function refers to an object that cannot be pickled; the message names it. Nothing
                was sent.
            InvalidConfig: a setting is unknown or invalid. Nothing was sent.
            DeploymentFailed: the function was stored but did not start in time; contains the reason, and the traceback
                in ``details``.
        """
        return await self.send(_prepare(function, inputs, output, settings))

    async def send(self, prepared: _Prepared) -> dict[str, Any]:
        """Create or update a prepared function."""
        path, rest = prepared.path, self._rest()
        try:
            await rest.request("GET", path)
        except RequestRefused as error:
            if error.status != _NOT_FOUND:
                raise
            answer = await rest.request("POST", path, parts=prepared.parts)
        else:
            query = {ROLLBACK_PARAMETER: prepared.rolls_back or None}
            answer = await rest.request("PUT", with_query(path, query), parts=prepared.parts)
        version = answer.headers.get(VERSION_HEADER.lower())
        if version is not None and prepared.wait_s is not None:  # Apache Pulsar's workers do not return it
            await self._wait_until_up(path, version, prepared.wait_s)
        return await self._record("GET", path)

    async def _wait_until_up(self, path: str, version: str, timeout_s: float) -> None:
        until_s = monotonic() + timeout_s
        answer: dict[str, Any] = {"version": version, "numRunning": 0, "numInstances": "all"}
        pause_s = 0.0
        while True:
            try:
                answer = await self._record("GET", with_query(f"{path}/deployment", {"version": version}))
                if is_up(answer):
                    return
            except (RequestRefused, ConnectionLost, OperationTimeout) as error:
                if isinstance(error, RequestRefused) and error.status < _SERVER_ERRORS:
                    raise
                answer = {**answer, "error": str(error)}  # an unreachable worker may become reachable
            left_s = until_s - monotonic()
            if left_s <= 0:
                raise not_up_in_time(answer, timeout_s)
            pause_s = next_pause(pause_s)
            await asyncio.sleep(min(pause_s, left_s))

    async def _record(self, method: str, path: str, timeout_s: float | None = ANSWER_TIMEOUT_S) -> dict[str, Any]:
        record: dict[str, Any] = (await self._rest().request(method, path, timeout_s=timeout_s)).json()
        return record

    async def get(self, name: Name, *, tenant: str | None = None, namespace: str | None = None) -> dict[str, Any]:
        """Return a function's config, in Pulsar's JSON."""
        return await self._record("GET", _path(name, tenant, namespace))

    async def list(self, *, tenant: str | None = None, namespace: str | None = None) -> list[str]:
        """Return the names of a namespace's functions."""
        return sorted((await self._rest().request("GET", _namespace_path(tenant, namespace))).json())

    async def delete(self, name: Name, *, tenant: str | None = None, namespace: str | None = None) -> None:
        """Stop and delete a function."""
        await self._rest().request("DELETE", _path(name, tenant, namespace))

    async def status(self, name: Name, *, tenant: str | None = None, namespace: str | None = None) -> dict[str, Any]:
        """Return a function's status: whether it runs, its counters and its errors, in Pulsar's JSON."""
        return await self._record("GET", f"{_path(name, tenant, namespace)}/status")

    async def stats(self, name: Name, *, tenant: str | None = None, namespace: str | None = None) -> dict[str, Any]:
        """Return a function's counters and latency, in Pulsar's JSON."""
        return await self._record("GET", f"{_path(name, tenant, namespace)}/stats")

    async def trigger(
        self,
        name: Name,
        value: str | bytes,
        *,
        topic: str | None = None,
        tenant: str | None = None,
        namespace: str | None = None,
    ) -> bytes:
        """Send one message to a function and return its output, which may be empty.

        Args:
            name: the function's name.
            value: the message.
            topic: one of its inputs; required if there are several.
            tenant: the function's tenant.
            namespace: the function's namespace.
        """
        parts: dict[str, tuple[str | None, str | bytes, str]]
        if isinstance(value, str):
            parts = {"data": (None, value, "text/plain")}
        else:
            parts = {"dataStream": ("value", value, "application/octet-stream")}
        if topic is not None:
            parts["topic"] = (None, topic, "text/plain")
        path = f"{_path(name, tenant, namespace)}/trigger"
        return (await self._rest().request("POST", path, parts=parts)).content

    async def run(self, name: Name, *, tenant: str | None = None, namespace: str | None = None) -> dict[str, Any]:
        """Run a function with runtime spark over its backlog, and wait until the run ends, without a timeout.

        Returns: the run, as reported by `status`; ``stage`` is ``done``, ``failed`` (with a ``reason``) or
            ``cancelled``.

        Raises:
            RequestRefused: a run is in progress, or the function has another runtime.
        """
        return await self._record("POST", f"{_path(name, tenant, namespace)}/trigger", timeout_s=None)

    async def logs(
        self, name: Name, *, tail: int = 100, tenant: str | None = None, namespace: str | None = None
    ) -> str:
        """Return the last ``tail`` lines of the output, logs and tracebacks of a function's instances."""
        path = with_query(f"{_path(name, tenant, namespace)}/logs", {"tail": str(tail), "follow": "false"})
        return (await self._rest().request("GET", path)).text


class _Caller(Protocol):
    """Runs a coroutine on another thread and waits for it."""

    def call(self, coroutine: Coroutine[Any, Any, _T]) -> _T: ...


def _waiting(
    method: Callable[Concatenate[AsyncFunctions, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate[Functions, _P], _T]:
    """Return a method for `Functions` that calls a method of `AsyncFunctions` and waits for its result."""

    @functools.wraps(method)
    def call(self: Functions, /, *arguments: _P.args, **options: _P.kwargs) -> _T:
        return self._call(method(self._functions, *arguments, **options))

    return call


class Functions:
    """The functions of a cluster, with blocking methods; created by `Client.functions`."""

    def __init__(self, caller: _Caller, functions: AsyncFunctions) -> None:
        """Create the API, which calls ``functions`` through ``caller``."""
        self._call = caller.call
        self._functions = functions

    def deploy(
        self,
        function: Callable[..., Any] | Processor | None = None,
        *,
        inputs: str | Sequence[str] | None = None,
        output: str | None = None,
        **settings: Any,
    ) -> dict[str, Any]:
        """Create a function, or update an existing one with new code and settings; unspecified settings are kept.

        Args:
            function: a function, a lambda, or a class or object with ``process(self, input, context)``. Objects that it
                refers to are sent with it, except for installed packages, which must be installed on the workers. If
                None, ``sql`` and ``name`` are required: the function is a SQL statement over its inputs as views.
            inputs: input topics, or a single one.
            output: output topic.
            **settings: ``name``, ``tenant``, ``namespace``, ``runtime`` (``"process"``, ``"thread"`` or
                ``"spark"``), ``subscription``, and every field of FunctionConfig: ``parallelism``, ``user_config``,
                ``processing_guarantees``, ``subscription_position``, ``log_topic``, …

        Returns: the function's config, as returned by `get`.

        Raises:
            UnpicklableFunction: the function refers to an object that cannot be pickled; the message names it. Nothing
                was sent.
            InvalidConfig: a setting is unknown or invalid. Nothing was sent.
            RequestRefused: the worker rejected the function; contains the reason.
        """
        return self._call(self._functions.send(_prepare(function, inputs, output, settings)))

    get = _waiting(AsyncFunctions.get)
    list = _waiting(AsyncFunctions.list)
    delete = _waiting(AsyncFunctions.delete)
    status = _waiting(AsyncFunctions.status)
    stats = _waiting(AsyncFunctions.stats)
    trigger = _waiting(AsyncFunctions.trigger)
    run = _waiting(AsyncFunctions.run)
    logs = _waiting(AsyncFunctions.logs)
