"""From a path and a verb to a handler.

Starlette's router does the matching, with two changes. Paths are matched as sent, not decoded: a topic may hold an
encoded slash. And all verbs of a path lie in one table, so that the wrong one is answered with the right ``Allow``.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable

from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from ...errors import BadVersion, MagnetarError, MetadataUnavailable, NotAllowed, ServiceNotReady, TopicNotFound
from ...web.answers import Refused, done, refusal
from ...wire.topic_name import DOMAINS
from .call import Admin, Call

Handler = Callable[[Call], Awaitable[Response]]
Routes = Iterable[tuple[str, str, Handler]]
"""Verb, path, handler."""

_VERBS = ("HEAD", "GET", "PUT", "POST", "DELETE", "OPTIONS")
_JSON_TYPES = ("application/json", "application/*", "*/*")
log = logging.getLogger(__name__)


class _Resource:
    """All verbs of one path, as an ASGI application."""

    def __init__(self, admin: Admin, verbs: dict[str, Handler]) -> None:
        self._admin = admin
        self._verbs = verbs
        if "GET" in verbs:
            verbs.setdefault("HEAD", verbs["GET"])
        self._allow = ",".join(verb for verb in _VERBS if verb in verbs or verb == "OPTIONS")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        response = await self._answer(request)
        if request.method == "HEAD":
            response.body = b""
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if request.path_params.get("domain", DOMAINS[0]) not in DOMAINS:
            return refusal(Refused(404, f"no such path: {request.scope['path']}"))
        handler = self._verbs.get(request.method)
        if handler is None:
            headers = {"Allow": self._allow}
            if request.method == "OPTIONS":
                return PlainTextResponse(self._allow.replace(",", ", "), headers=headers)
            return refusal(Refused(405, f"{request.method} is not allowed here, only {self._allow}", headers))
        try:
            _check_accept(request)
            return await handler(Call(self._admin, request))
        except Refused as error:
            return refusal(error)
        except BadVersion:
            return refusal(Refused(409, "Concurrent modification"))
        except TopicNotFound as error:
            return refusal(Refused(404, str(error)))
        except NotAllowed as error:
            return refusal(Refused(412, str(error)))
        except (ServiceNotReady, MetadataUnavailable) as error:  # a topic closed meanwhile; or a store that is away
            return refusal(Refused(503, str(error)))
        except MagnetarError as error:
            log.warning("%s %s failed: %s", request.method, request.url.path, error)
            return refusal(Refused(500, str(error)))
        except ClientDisconnect:  # nobody is left to read an answer
            return done()
        except Exception as error:  # the boundary of a request: one bug must not take the connection along
            log.exception("%s %s failed", request.method, request.url.path)
            return refusal(Refused(500, f"internal error {type(error).__name__}: {error}; see the broker's log"))


def make_router(admin: Admin, routes: Routes, forward: ASGIApp, forwards: Callable[[str], bool]) -> ASGIApp:
    """Return the application: admin routes, what is passed on, 404 for the rest.

    Args:
        admin: what handlers use.
        routes: verb, path, handler; the first path that matches answers.
        forward: the application that passes a request on, body and all.
        forwards: which paths it takes.
    """
    table: dict[str, dict[str, Handler]] = {}
    for verb, path, handler in routes:
        table.setdefault(path, {})[verb] = handler
    router = Router([Route(path, _Resource(admin, verbs)) for path, verbs in table.items()], redirect_slashes=False)
    router.default = _unknown_path

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        path = _raw_path(scope)
        if forwards(path):
            await forward(scope, receive, send)
        else:
            await router({**scope, "path": path}, receive, send)

    return application


def _raw_path(scope: Scope) -> str:
    """Return the path as it was sent, without a trailing slash."""
    raw: bytes = scope["raw_path"].split(b"?")[0]
    path = raw.decode("latin-1")
    return path[:-1] if path.endswith("/") and len(path) > 1 else path


def _check_accept(request: Request) -> None:
    """Refuse a client that takes no JSON: Pulsar labels every admin answer as JSON, whatever it is."""
    accept = request.headers.get("accept", "").lower()
    if accept and not any(kind.split(";")[0].strip() in _JSON_TYPES for kind in accept.split(",")):
        raise Refused(406, f"answers are application/json, but only {accept} is accepted")


async def _unknown_path(scope: Scope, receive: Receive, send: Send) -> None:
    await refusal(Refused(404, f"no such path: {scope['path']}"))(scope, receive, send)
