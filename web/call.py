"""A REST request as seen by handlers: path parameters decoded once, query parameters, and a size-limited body."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import unquote

from starlette.requests import Request
from starlette.types import Scope

from ..errors import MagnetarError, RequestRefused
from ..security.roles import Roles
from .answers import Refused

ROLES = "magnetar.roles"
"""Scope key for a request's `Roles`, which are missing or None if authentication is disabled."""
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
_TRUE = dict.fromkeys(("true", "1", "yes", "on", "t", "y"), True)
_FALSE = dict.fromkeys(("false", "0", "no", "off", "f", "n"), False)
_BOOLEANS = _TRUE | _FALSE
_READERS: dict[type, Callable[[str], Any]] = {str: str, int: int, bool: lambda text: _BOOLEANS[text.lower()]}
KINDS = {str: "string", int: "integer", bool: "boolean"}
"""OpenAPI types of query parameters."""
_QUERY = "query_parameters"
DECIDE_TIMEOUT_S = 2.0
"""Timeout for checking the permissions of a streaming response, which waits meanwhile."""
log = logging.getLogger(__name__)


class Call:
    """A request in progress; created by the router, which matches paths as sent.

    Attributes:
        decide: raises if the request is not (or no longer) authorized; None if authorization is disabled.
        is_super_user: whether a superuser sent the request; False if authorization is disabled.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self.decide: Callable[[], Awaitable[None]] | None = None
        self.is_super_user = False
        self._is_undecided = False

    @property
    def roles(self) -> Roles | None:
        """The client's roles, or None if authentication is disabled."""
        roles: Roles | None = self.request.scope.get(ROLES)
        return roles

    async def ended(self, now_s: float) -> str:
        """Return why a streaming response must end if the client has lost its permissions, or an empty string.

        Args:
            now_s: current time, in seconds since the epoch.
        """
        roles = self.roles
        if roles is not None and roles.expires_at is not None and now_s > roles.expires_at:
            return "the credentials of this request have expired"
        if self.decide is not None:
            try:
                async with asyncio.timeout(DECIDE_TIMEOUT_S):
                    await self.decide()
                self._is_undecided = False
            except RequestRefused as error:
                return str(error)
            except (MagnetarError, TimeoutError) as error:
                if not self._is_undecided:
                    self._is_undecided = True
                    reason = str(error) or f"timed out after {DECIDE_TIMEOUT_S:g} s"
                    log.warning("cannot check the permissions of %s: %s", self.request.url.path, reason)
        return ""

    def close(self) -> None:
        """Release the request's resources. Called after the response."""

    def raw(self, name: str) -> str:
        """Return a path parameter as sent."""
        value: str = self.request.path_params[name]
        return value

    def text(self, name: str) -> str:
        """Return a path parameter, decoded once."""
        return decoded(self.raw(name))

    async def body_bytes(self, max_bytes: int) -> bytes:
        """Return the body.

        Raises:
            Refused: 413, the body is too large.
        """
        chunks: list[bytes] = []
        size = 0
        async for chunk in self.request.stream():
            size += len(chunk)
            if size > max_bytes:
                raise Refused(413, f"the request body exceeds {max_bytes} bytes")
            chunks.append(chunk)
        return b"".join(chunks)


def caller_of(scope: Scope) -> str:
    """Return the key of per-client limits: the role, or the address if the role is unknown."""
    roles: Roles | None = scope.get(ROLES)
    role = None if roles is None else roles.original or roles.role
    if role is not None:
        return f"role {role}"
    client = scope.get("client")
    return f"address {client[0] if client else 'unknown'}"


def decoded(raw: str) -> str:
    """Decode percent escapes."""
    try:
        return unquote(raw, errors="strict")
    except UnicodeDecodeError as error:
        raise Refused(400, f"the path is not valid UTF-8: {error.reason} in {raw[:80]!r}") from error


@dataclass(frozen=True, slots=True)
class Query(Generic[T]):
    """A query parameter of a route, used by its handler and by the API description.

    Attributes:
        name: name in the URL.
        kind: `str`, `int` or `bool`.
        default: value if the parameter is missing; None makes it required.
    """

    name: str
    kind: type[T]
    default: T | None = None

    def of(self, call: Call) -> T:
        """Return the value.

        Raises:
            Refused: 400, the parameter is missing or has the wrong type.
        """
        text = call.request.query_params.get(self.name)
        if text is None:
            if self.default is None:
                raise Refused(400, f"{self.name}: Field required")
            return self.default
        try:
            found: T = _READERS[self.kind](text)
        except (ValueError, KeyError) as error:
            raise Refused(400, f"{self.name}: Input should be a valid {KINDS[self.kind]}") from error
        return found


def takes(*query: Query[Any]) -> Callable[[F], F]:
    """Declare the query parameters that a handler reads."""

    def mark(handler: F) -> F:
        setattr(handler, _QUERY, query)
        return handler

    return mark


def query_of(handler: Callable[..., Any]) -> tuple[Query[Any], ...]:
    """Return the query parameters that a handler reads."""
    found: tuple[Query[Any], ...] = getattr(handler, _QUERY, ())
    return found
