"""Router of all REST APIs: maps paths and methods to handlers, and errors to responses.

Starlette's router does the matching, with three changes. Paths are matched as sent, not decoded: a topic name may
contain an encoded slash. A trailing slash is ignored unless the route has one. All methods of a path are in one table,
so that the response to an unsupported method has the correct ``Allow`` header.

Starlette compares a path with every route in turn, and a broker has hundreds. Candidate routes are therefore found by
the path's first parts and its number of parts, and Starlette matches among them, in table order. Their regular
expressions are compiled on the first request for such a path, because compiling all of a broker's takes 40 ms and 1 MB.

With a guard, the server does not start if a route has no rule. Without a guard, rules are not looked up.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Generic, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from ..errors import MagnetarError, RequestRefused
from ..security.audit import record
from ..security.authorization.rules import Rules
from ..security.roles import Roles
from .answers import Refused, done, refusal
from .call import ROLES, Call
from .guard import Guard

C = TypeVar("C", bound=Call)
Handler = Callable[[C], Awaitable[Response | None] | Response | None]
"""Handler of a request: a function or coroutine function. If it returns None, the response is 204."""
Routes = Iterable[tuple[str, str, Handler[C]]]
"""Method, path and handler. The first matching path is used."""
Refuse = Callable[[MagnetarError], Refused]

_LITERAL_PARTS = 4
"""Number of leading path parts by which routes are indexed, as in ``/admin/v2/persistent``."""
_READS = frozenset(("GET", "HEAD", "OPTIONS"))
_REFUSALS = frozenset((401, 403))
_METHODS = ("HEAD", "GET", "PUT", "POST", "DELETE", "OPTIONS")
log = logging.getLogger(__name__)


class RestRouter(Generic[C]):
    """ASGI application for a route table. Other paths return 404."""

    def __init__(
        self,
        routes: Routes[C],
        make_call: Callable[[Request], C],
        refuse: Refuse,
        server: str,
        guard: Guard[C] | None = None,
    ) -> None:
        """Create a router.

        Args:
            routes: route table.
            make_call: returns the argument for a handler; may reject the request.
            refuse: translates a handler's error to an error response.
            server: name of the server whose log contains the details of internal errors.
            guard: authorizes each request before its handler; None disables authorization.

        Raises:
            InvalidConfig: the guard has no rule for a route.
        """
        self._make_call = make_call
        self._refuse = refuse
        self._server = server
        self._guard = guard
        self._table: dict[str, dict[str, Handler[C]]] = {}
        for method, path, handler in routes:
            self.rules_of(method, path)  # raises for a route without rules, to prevent the server from starting
            self._table.setdefault(path, {})[method] = handler
        self._keys = {path: _key_of_route(path) for path in self._table}
        self._known_keys = frozenset(self._keys.values())
        self._paths: dict[str, _Path] = {}
        self._routers: dict[_Key | None, Router] = {}

    def _router_of(self, key: _Key | None) -> Router:
        """Return the router for paths with a key, creating it on the first request for one of them."""
        if key not in self._known_keys:
            key = None
        router = self._routers.get(key)
        if router is None:
            paths = [path for path, of_path in self._keys.items() if of_path in (key, None)]
            router = self._routers[key] = Router([self._route(path) for path in paths], redirect_slashes=False)
            router.default = self._other
        return router

    def _route(self, path: str) -> Route:
        route = self._paths.get(path)
        if route is None:
            route = self._paths[path] = _Path(path, self, self._table[path])
        return route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        await self._match({**scope, "path": raw_path(scope)}, receive, send)

    async def _match(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._router_of(_key_of_path(scope["path"]))(scope, receive, send)

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if path.endswith("/") and len(path) > 1 and path == raw_path(scope):
            await self._match({**scope, "path": path[:-1]}, receive, send)
        else:
            await refusal(Refused(404, f"no such path: {path}"))(scope, receive, send)

    def rules_of(self, method: str, path: str) -> Rules:
        """Return the authorization rules of a route, or no rules without a guard."""
        return () if self._guard is None else self._guard.rules_of(method, path)

    async def answer(self, request: Request, handler: Handler[C], rules: Rules) -> Response:
        """Return a handler's response, or the response for its error."""
        response = await self._answer(request, handler, rules)
        roles: Roles | None = request.scope.get(ROLES)
        if roles is not None and (request.method not in _READS or response.status_code in _REFUSALS):
            record(roles, _peer(request), request.method, request.scope["path"], str(response.status_code))
        return response

    async def _answer(self, request: Request, handler: Handler[C], rules: Rules) -> Response:
        try:
            call = self._make_call(request)
            with contextlib.closing(call):
                if self._guard is not None:
                    call.decide = partial(self._guard.check, call, rules)
                    await call.decide()
                    call.is_super_user = self._guard.is_super_user(call)
                answer = handler(call)
                return (await answer if isinstance(answer, Awaitable) else answer) or done()
        except RequestRefused as error:
            return refusal(error)
        except ClientDisconnect:  # nothing will read the response
            return done()
        except MagnetarError as error:
            known = self._refuse(error)
            if known.status == 500:
                log.warning("%s %s failed: %s", request.method, request.url.path, error)
            return refusal(known)
        except Exception as error:  # an internal error must not close the connection
            log.exception("%s %s failed", request.method, request.url.path)
            text = f"internal error {type(error).__name__}: {error}; see the {self._server}'s log"
            return refusal(Refused(500, text))


class _Path(Route):
    """A path with the handlers for its methods."""

    def __init__(self, path: str, router: RestRouter[C], handlers: dict[str, Handler[C]]) -> None:
        if "GET" in handlers:
            handlers.setdefault("HEAD", handlers["GET"])
        allowed = [method for method in _METHODS if method in handlers or method == "OPTIONS"]
        super().__init__(path, router, methods=allowed)
        self._allow = ",".join(allowed)
        self._answers = {
            method: partial(router.answer, handler=handler, rules=router.rules_of(method, path))
            for method, handler in handlers.items()
        }

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request to this path with any method. The router prefers a path that supports the method."""
        request = Request(scope, receive)
        answer = self._answers.get(request.method)
        if answer is not None:
            response = await answer(request)
        elif request.method == "OPTIONS":
            response = PlainTextResponse(self._allow.replace(",", ", "), headers={"Allow": self._allow})
        else:
            reason = f"{request.method} is not allowed for this path: use {self._allow}"
            response = refusal(Refused(405, reason, {"Allow": self._allow}))
        if request.method == "HEAD" and isinstance(response, StreamingResponse):
            response = Response(status_code=response.status_code, headers=dict(response.headers))
        elif request.method == "HEAD":
            response.body = b""
        await response(scope, receive, send)


_Key = tuple[int, str]
"""Number of path parts, and the first `_LITERAL_PARTS` of them."""


def _key_of_path(path: str) -> _Key:
    parts = path.split("/")
    return len(parts), "/".join(parts[:_LITERAL_PARTS])


def _key_of_route(path: str) -> _Key | None:
    """Return the key of all paths that a route matches, or None if they may have different keys."""
    key = _key_of_path(path)
    is_open = ":path}" in path or "{" in key[1] or key[0] < _LITERAL_PARTS
    return None if is_open else key


def _peer(request: Request) -> str:
    client = request.client
    return "" if client is None else f"{client.host}:{client.port}"


def raw_path(scope: Scope) -> str:
    """Return the path as sent."""
    raw: bytes = scope["raw_path"].split(b"?")[0]
    return raw.decode("latin-1")
