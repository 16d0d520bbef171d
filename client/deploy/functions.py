"""Functions from Python: ``client.functions.deploy(fn, inputs=…, output=…)`` and what one asks of them afterwards.

Design: the function is turned into a package on the calling thread, because its objects may belong to that thread; what
follows is the REST interface that all tools use. `AsyncFunctions` is the interface, `Functions` waits for it.
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
"""What names a function: its name, tenant/namespace/name, or the function that was deployed under its own name."""


class Processor(Protocol):
    """An object with a method `process`, which `deploy` takes like a function."""

    def process(self, value: Any, context: Any, /) -> Any:
        """Return what goes out."""


class _Prepared(NamedTuple):
    path: str
    parts: Parts
    wait_s: float | None
    """How long to wait until it runs; None: not at all."""
    rolls_back: bool


def _path(name: Name, tenant: str | None, namespace: str | None) -> str:
    """Return the path of a function: of its name, of tenant/namespace/name, or of the object that was deployed."""
    text = name if isinstance(name, str) else own_name(name)
    if not text:
        raise InvalidConfig(f"{name!r:.80} has no name of its own; give its name as a text")
    parts = text.split("/")
    if len(parts) == 3 and tenant is None and namespace is None:
        tenant, namespace, text = parts
    elif len(parts) != 1:
        raise InvalidConfig(f"name={text!r} must be a name, or tenant/namespace/name without tenant= and namespace=")
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
            f"wait_timeout_s={wait_s!r} must be a number of seconds, 0 or more; to wait not, wait=False"
        )
    rolls_back = bool(settings.pop("rollback_on_failure", True))
    statement = settings.get("sql")
    if function is None and statement is None:
        raise InvalidConfig("no function to deploy: pass a function, or sql='SELECT …' with runtime='spark'")
    if function is not None and statement is not None:
        raise InvalidConfig("sql: the function is the statement; leave one out")
    if function is None and not name:
        raise InvalidConfig("sql: a statement has no name of its own; give one: deploy(sql=…, name='…')")
    if not name and own_name(function) is None:
        raise InvalidConfig(f"{function!r:.80} has no name of its own; give one: deploy(…, name='…')")
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
    """The functions of a cluster; made by `AsyncClient.functions`. Every method names a function in one of three ways.

    ``"name"``, with ``tenant`` and ``namespace`` if they are not public and default; ``"tenant/namespace/name"``; or
    the function itself that was deployed under its own name.

    Cancellation: a request that is under way may still be carried out.

    Raises:
        RequestRefused: the cluster refuses; its reason, and the status (404: no such function).
        ConnectionLost, OperationTimeout: no worker answers.
    """

    def __init__(self, rest: Callable[[], RestClient]) -> None:
        """Ask for the connection when it is needed."""
        self._rest = rest

    async def deploy(
        self,
        function: Callable[..., Any] | Processor | None = None,
        *,
        inputs: str | Sequence[str] | None = None,
        output: str | None = None,
        **settings: Any,
    ) -> dict[str, Any]:
        """Create a function, or give an existing one new code and settings; what is not named stays as it is.

        Args:
            function: a function, a lambda, or a class or object with ``process(self, input, context)``. What it
                refers to is sent with it, except for installed packages, which the workers must have. None, with
                ``sql`` and ``name``: the function is that statement, over its inputs as views.
            inputs: input topics, or the only one.
            output: output topic.
            **settings: ``name``, ``tenant``, ``namespace``, ``runtime`` (``"process"``, ``"thread"`` or
                ``"spark"``), ``subscription``, and every field of FunctionConfig: ``parallelism``, ``user_config``,
                ``processing_guarantees``, ``subscription_position``, ``log_topic``, … Of the deployment itself:
                ``wait`` (True: until all instances run), ``wait_timeout_s`` (120), and ``rollback_on_failure`` (True:
                the version before is restored if a new one does not come up).

        Returns: the function's config, as `get` does.

        Raises:
            UnpicklableFunction: it refers to something that belongs to this process; says what. Nothing was
                sent.
            InvalidConfig: a setting is unknown or wrong. Nothing was sent.
            DeploymentFailed: it was stored and does not run, or not in time; says why, with the traceback in
                ``details``.
        """
        return await self.send(_prepare(function, inputs, output, settings))

    async def send(self, prepared: _Prepared) -> dict[str, Any]:
        """Create or update what was prepared."""
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
        if version is not None and prepared.wait_s is not None:  # Apache Pulsar's workers do not tell it
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
                answer = {**answer, "error": str(error)}  # a worker that is away may come back
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
        """Stop a function and remove it."""
        await self._rest().request("DELETE", _path(name, tenant, namespace))

    async def status(self, name: Name, *, tenant: str | None = None, namespace: str | None = None) -> dict[str, Any]:
        """Return whether a function runs, what it did and what failed, in Pulsar's JSON."""
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
        """Send one message to a function and return what comes out; empty if nothing does.

        Args:
            name: of the function.
            value: the message.
            topic: one of its inputs; needed when there are several.
            tenant: of the function.
            namespace: of the function.
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
        """Have a function of the runtime spark work its backlog off, and wait for the end, however long it takes.

        Returns: the run as `status` shows it; ``stage`` is ``done``, ``failed`` (with a ``reason``) or ``cancelled``.

        Raises:
            RequestRefused: it runs already, or is not of that runtime.
        """
        return await self._record("POST", f"{_path(name, tenant, namespace)}/trigger", timeout_s=None)

    async def logs(
        self, name: Name, *, tail: int = 100, tenant: str | None = None, namespace: str | None = None
    ) -> str:
        """Return the last ``tail`` lines of what a function's instances printed and logged, and their tracebacks."""
        path = with_query(f"{_path(name, tenant, namespace)}/logs", {"tail": str(tail), "follow": "false"})
        return (await self._rest().request("GET", path)).text


class _Caller(Protocol):
    """Runs a coroutine elsewhere and waits for it."""

    def call(self, coroutine: Coroutine[Any, Any, _T]) -> _T: ...


def _waiting(
    method: Callable[Concatenate[AsyncFunctions, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate[Functions, _P], _T]:
    """Return the method of `Functions` that calls one of `AsyncFunctions` and waits for its result."""

    @functools.wraps(method)
    def call(self: Functions, /, *arguments: _P.args, **options: _P.kwargs) -> _T:
        return self._call(method(self._functions, *arguments, **options))

    return call


class Functions:
    """The functions of a cluster, for blocking code; made by `Client.functions`."""

    def __init__(self, caller: _Caller, functions: AsyncFunctions) -> None:
        """Call ``functions`` by way of ``caller``."""
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
        """Create a function, or give an existing one new code and settings; what is not named stays as it is.

        Args:
            function: a function, a lambda, or a class or object with ``process(self, input, context)``. What it
                refers to is sent with it, except for installed packages, which the workers must have. None, with
                ``sql`` and ``name``: the function is that statement, over its inputs as views.
            inputs: input topics, or the only one.
            output: output topic.
            **settings: ``name``, ``tenant``, ``namespace``, ``runtime`` (``"process"``, ``"thread"`` or
                ``"spark"``), ``subscription``, and every field of FunctionConfig: ``parallelism``, ``user_config``,
                ``processing_guarantees``, ``subscription_position``, ``log_topic``, …

        Returns: the function's config, as `get` does.

        Raises:
            UnpicklableFunction: it refers to something that belongs to this process; says what. Nothing was
                sent.
            InvalidConfig: a setting is unknown or wrong. Nothing was sent.
            RequestRefused: the worker refuses it; says why.
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
