"""The worker's REST interface, put together, behind a door that opens when the worker is ready."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from fastapi import APIRouter, FastAPI
from fastapi.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ... import __version__
from .answers import install_error_answers, refused

NOT_READY = "Function worker service is not done initializing. Please try again in a little while."


class Door:
    """Answers that the worker is not ready until the application is let in."""

    def __init__(self) -> None:
        self._app: ASGIApp | None = None

    @property
    def is_open(self) -> bool:
        """Whether requests are answered."""
        return self._app is not None

    def open(self, app: ASGIApp) -> None:
        """Answer requests from now on."""
        self._app = app

    def close(self) -> None:
        """Answer no more; the worker is stopping."""
        self._app = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        app = self._app if self._app is not None else refused(503, NOT_READY)
        await app(scope, receive, send)


def make_app(routers: Sequence[APIRouter], metrics: Callable[[], Awaitable[tuple[bytes, str]]]) -> FastAPI:
    """Return the application.

    Args:
        routers: everything below /admin.
        metrics: text and content type for Prometheus.
    """
    app = FastAPI(title="Magnetar function worker", version=__version__)
    install_error_answers(app)
    for router in routers:
        app.include_router(router)

    @app.get("/metrics")
    async def read_metrics() -> Response:
        """Return everything for Prometheus."""
        text, content_type = await metrics()
        return Response(text, media_type=content_type)

    @app.get("/version")
    async def version() -> Response:
        """Return the worker's version."""
        return JSONResponse({"version": __version__})

    @app.get("/initialized")
    async def initialized() -> Response:
        """Return true; before that the door answers."""
        return JSONResponse(True)

    return app
