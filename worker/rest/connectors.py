"""`/admin/v3/sources` and `/admin/v3/sinks`, singular too: clear answers until connectors come with a later version."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.responses import Response

from ...errors import RequestRefused
from ...web.answers import as_json
from ...web.router import Handler
from .app import WorkerCall

_COMMANDS = ("start", "stop", "restart")


def connectors_routes() -> Iterator[tuple[str, str, Handler[WorkerCall]]]:
    """Return the routes of both kinds under both spellings."""
    for kind in ("Source", "Sink"):
        word = kind.lower()
        for base in (f"/admin/v3/{word}s", f"/admin/v3/{word}"):
            yield from _routes_of(base, kind)


def _routes_of(base: str, kind: str) -> Iterator[tuple[str, str, Handler[WorkerCall]]]:
    word = kind.lower()

    async def empty(_: WorkerCall) -> Response:
        """Return an empty list: there are no connectors yet."""
        return as_json([])

    async def reload_nothing(_: WorkerCall) -> None:
        """Reload the built-in connectors: there are none."""

    async def refuse(_: WorkerCall) -> Response:
        """Refuse to create or update a connector."""
        raise RequestRefused(501, f"{word}s are not supported yet; use a function")

    async def missing(call: WorkerCall) -> Response:
        """Answer that there is no such connector."""
        raise RequestRefused(404, f"{kind} {call.name('name')} doesn't exist")

    one = base + "/{tenant}/{namespace}/{name}"
    yield "GET", f"{base}/builtin{word}s", empty
    yield "GET", f"{base}/builtin{word}s/{{name}}/configdefinition", missing
    yield "POST", f"{base}/reloadBuiltIn{kind}s", reload_nothing
    yield "GET", f"{base}/{{tenant}}/{{namespace}}", empty
    yield "POST", one, refuse
    yield "PUT", one, refuse
    for method, path in (("GET", one), ("DELETE", one), ("GET", f"{one}/status")):
        yield method, path, missing
    yield "GET", f"{one}/{{instance_id}}/status", missing
    for command in _COMMANDS:
        yield "POST", f"{one}/{command}", missing
        yield "POST", f"{one}/{{instance_id}}/{command}", missing
