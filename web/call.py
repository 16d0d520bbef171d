"""One REST request as handlers read it: path parameters decoded once, query parameters, and a bounded body."""

from __future__ import annotations

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
"""Key of a request's scope: its `Roles`; absent or None while authentication is off."""
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
_TRUE = dict.fromkeys(("true", "1", "yes", "on", "t", "y"), True)
_FALSE = dict.fromkeys(("false", "0", "no", "off", "f", "n"), False)
_BOOLEANS = _TRUE | _FALSE
_READERS: dict[type, Callable[[str], Any]] = {str: str, int: int, bool: lambda text: _BOOLEANS[text.lower()]}
KINDS = {str: "string", int: "integer", bool: "boolean"}
"""What the values of a query parameter are called."""
_QUERY = "query_parameters"
log = logging.getLogger(__name__)


class Call:
    """A request under way; made by the router, whose paths are matched as they were sent.

    Attributes:
        decide: raises a refusal if the request is not allowed (any more); None where everything is.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self.decide: Callable[[], Awaitable[None]] | None = None

    @property
    def roles(self) -> Roles | None:
        """Who asks; None while authentication is off."""
        roles: Roles | None = self.request.scope.get(ROLES)
        return roles

    async def ended(self, now_s: float) -> str:
        """Return why an answer that goes on must end, empty if it need not: who asked may not ask any more.

        Args:
            now_s: the time, in seconds since the epoch.
        """
        roles = self.roles
        if roles is not None and roles.expires_at is not None and now_s > roles.expires_at:
            return "the credentials of this request have expired"
        if self.decide is not None:
            try:
                await self.decide()
            except RequestRefused as error:
                return str(error)
            except MagnetarError as error:
                log.warning("whether %s may go on cannot be decided: %s", self.request.url.path, error)
        return ""

    def close(self) -> None:
        """Release what the request holds; called once it is answered."""

    def raw(self, name: str) -> str:
        """Return a path parameter as it was sent."""
        value: str = self.request.path_params[name]
        return value

    def text(self, name: str) -> str:
        """Return a path parameter, decoded once."""
        return decoded(self.raw(name))

    async def body_bytes(self, max_bytes: int) -> bytes:
        """Return the body.

        Raises:
            Refused: 413, it is larger.
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
    """Return who shares the limits of a server with itself only: a role, or an address if no role is known."""
    roles: Roles | None = scope.get(ROLES)
    role = None if roles is None else roles.original or roles.role
    if role is not None:
        return f"role {role}"
    client = scope.get("client")
    return f"address {client[0] if client else 'unknown'}"


def decoded(raw: str) -> str:
    """Return a text behind its percent escapes."""
    try:
        return unquote(raw, errors="strict")
    except UnicodeDecodeError as error:
        raise Refused(400, f"the path is not valid UTF-8: {error.reason} in {raw[:80]!r}") from error


@dataclass(frozen=True, slots=True)
class Query(Generic[T]):
    """One query parameter of a route, for the handler that reads it and for the description of the interface.

    Attributes:
        name: in the address.
        kind: `str`, `int` or `bool`.
        default: where it is missing; None: it is required.
    """

    name: str
    kind: type[T]
    default: T | None = None

    def of(self, call: Call) -> T:
        """Return the value.

        Raises:
            Refused: 400, it is missing or of another kind.
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
    """Say of a handler which query parameters it reads."""

    def mark(handler: F) -> F:
        setattr(handler, _QUERY, query)
        return handler

    return mark


def query_of(handler: Callable[..., Any]) -> tuple[Query[Any], ...]:
    """Return the query parameters that a handler reads."""
    found: tuple[Query[Any], ...] = getattr(handler, _QUERY, ())
    return found
