"""`/admin/v3/sources` and `/admin/v3/sinks`, singular too: clear answers until connectors come with a later version."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from ...errors import RequestRefused
from .answers import nothing


def connectors_router() -> APIRouter:
    """Return the routes of both kinds under both spellings."""
    router = APIRouter(tags=["connectors"])
    for kind in ("Source", "Sink"):
        word = kind.lower()
        for base in (f"/admin/v3/{word}s", f"/admin/v3/{word}"):
            _add(router, base, kind)
    return router


def _add(router: APIRouter, base: str, kind: str) -> None:
    word = kind.lower()

    async def empty() -> Response:
        return JSONResponse([])

    async def reload_nothing() -> Response:
        return nothing()

    async def refuse() -> Response:
        raise RequestRefused(501, f"{word}s are not supported yet; use a function")

    async def missing(name: str) -> Response:
        raise RequestRefused(404, f"{kind} {name} doesn't exist")

    one = base + "/{tenant}/{namespace}/{name}"
    routes: tuple[tuple[str, str, Callable[..., Awaitable[Response]]], ...] = (
        ("GET", f"{base}/builtin{word}s", empty),
        ("GET", f"{base}/builtin{word}s/{{name}}/configdefinition", missing),
        ("POST", f"{base}/reloadBuiltIn{kind}s", reload_nothing),
        ("GET", f"{base}/{{tenant}}/{{namespace}}", empty),
        ("POST", one, refuse),
        ("PUT", one, refuse),
        ("GET", one, missing),
        ("DELETE", one, missing),
        ("GET", f"{one}/status", missing),
        ("GET", f"{one}/{{instance_id}}/status", missing),
        *(("POST", f"{one}/{verb}", missing) for verb in ("start", "stop", "restart")),
        *(("POST", f"{one}/{{instance_id}}/{verb}", missing) for verb in ("start", "stop", "restart")),
    )
    for method, path, handler in routes:
        router.add_api_route(path, handler, methods=[method], response_model=None)
