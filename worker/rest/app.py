"""Assembly of the worker's REST interface, and a gate that opens when the worker is ready."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from itertools import chain

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ... import __version__
from ...errors import ConnectionLost, MagnetarError, OperationTimeout, PackageError
from ...metadata.packages import PackageStore
from ...web.answers import Refused, as_json, refusal
from ...web.call import Call, caller_of
from ...web.guard import Guard
from ...web.openapi import pages
from ...web.router import RestRouter, Routes
from ..functions.service import FunctionName
from .form_limits import FormAccount, FormLimits
from .multipart import Form, read_form

ONE_FUNCTION = "/admin/v3/functions/{tenant}/{namespace}/{name}"


class WorkerCall(Call):
    """A request being handled."""

    def __init__(self, request: Request, limits: FormLimits) -> None:
        super().__init__(request)
        self._account = FormAccount(limits, caller_of(request.scope))

    async def form(self, stream_part: str | None = None, uploads: PackageStore | None = None) -> Form:
        """Return the parts of the request by name; see `read_form`."""
        return await read_form(self.request, self._account, stream_part, uploads)

    def close(self) -> None:
        """Release the resources of the form."""
        self._account.close()

    def name(self, parameter: str) -> str:
        """Return a decoded path parameter of one segment; raise 404 if it contains a slash."""
        text = self.text(parameter)
        if "/" in text:
            raise Refused(404, f"no such path: {self.request.scope['path']}")
        return text

    @property
    def function(self) -> FunctionName:
        """The function in the path."""
        return FunctionName(self.name("tenant"), self.name("namespace"), self.name("name"))

    def instance_id(self, what: str) -> int:
        """Return the instance number in the path; `what` names the request in errors."""
        text = self.name("instance_id")
        try:
            return int(text)
        except ValueError:
            raise Refused(400, f"{what}: instance id {text!r} is not a number") from None

    def optional_instance_id(self, what: str) -> int | None:
        """Return the instance number in the path, or None if the path is for all instances."""
        return self.instance_id(what) if "instance_id" in self.request.path_params else None


WorkerRoutes = Routes[WorkerCall]


def refuse(error: MagnetarError) -> Refused:
    """Return the response for an exception."""
    if isinstance(error, PackageError):
        return Refused(400, str(error))
    status = 503 if isinstance(error, ConnectionLost | OperationTimeout) else 500
    return Refused(status, f"{type(error).__name__}: {error}")


NOT_READY = "Function worker service is not done initializing. Please try again in a little while."
TITLE = "Magnetar function worker"


class ReadinessGate:
    """Responds that the worker is not ready, until the application is ready to handle requests."""

    def __init__(self) -> None:
        self._app: ASGIApp | None = None

    def open(self, app: ASGIApp) -> None:
        """Start handling requests."""
        self._app = app

    def close(self) -> None:
        """Stop handling requests, because the worker is stopping."""
        self._app = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        app = self._app if self._app is not None else refusal(Refused(503, NOT_READY))
        await app(scope, receive, send)


def make_app(
    tables: Iterable[WorkerRoutes],
    metrics: Callable[[], Awaitable[bytes]],
    guard: Guard[WorkerCall] | None = None,
) -> ASGIApp:
    """Return the application.

    Args:
        tables: routes of everything below /admin.
        metrics: returns the metrics for Prometheus.
        guard: authorizes each request before it is handled; None to allow everything.
    """

    async def read_metrics(_: WorkerCall) -> Response:
        """Return all metrics in Prometheus format."""
        from ...web.exposition import CONTENT_TYPE  # imports prometheus_client only when metrics are requested

        return Response(await metrics(), media_type=CONTENT_TYPE)

    async def version(_: WorkerCall) -> Response:
        """Return the worker's version."""
        return as_json({"version": __version__})

    async def initialized(_: WorkerCall) -> Response:
        """Return true; until then, the gate responds."""
        return as_json(True)

    routes = [
        *chain.from_iterable(tables),
        ("GET", "/metrics", read_metrics),
        ("GET", "/version", version),
        ("GET", "/initialized", initialized),
    ]
    make_call = partial(WorkerCall, limits=FormLimits())
    return RestRouter([*routes, *pages(TITLE, __version__, routes)], make_call, refuse, "worker", guard)
