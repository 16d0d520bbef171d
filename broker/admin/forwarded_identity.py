"""Headers that identify the caller to a functions worker, when the broker forwards a request. Pure logic.

A caller identified by its headers (a token, a password, or anonymous) is identified by the worker in the same way: they
are passed on unchanged, including a proxy's `X-Original-Principal`. A caller identified by its client certificate is
not, because the connection to the worker is the broker's own: the broker asserts its role instead, which only the
worker that it supervises trusts. With another worker, such callers are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...security.roles import Roles
from ...web.answers import Refused

HEADER = b"x-magnetar-forwarded"
"""Defined in `security.authentication.forwarded`, which a broker without authentication does not import."""
BY_CERTIFICATE = "tls"
_HOW_KNOWN = frozenset((b"authorization", b"x-pulsar-auth-method-name", HEADER))
_NOT_SEEN = (
    "this request is known by its client certificate only, which a functions worker does not see through the broker;"
    " show a token or a password, or ask the worker itself"
)

Headers = list[tuple[bytes, bytes]]
Vouch = Callable[[str], str]
"""Returns the broker's assertion of a role."""


def with_identity(
    headers: Iterable[tuple[bytes, bytes]], roles: Roles | None, method: str, vouch: Vouch | None
) -> Headers:
    """Return the headers of a request to a worker.

    Args:
        headers: of the incoming request, names in lower case.
        roles: roles of the caller; None without authentication.
        method: the authentication method of the caller.
        vouch: returns the broker's assertion of a role; None if workers would not trust it.

    Raises:
        Refused: the caller's identity cannot be passed on to the worker.
    """
    if roles is None or method != BY_CERTIFICATE:
        return [(name, value) for name, value in headers if name != HEADER]
    if vouch is None or roles.role is None:
        raise Refused(401, _NOT_SEEN)
    kept = [(name, value) for name, value in headers if name not in _HOW_KNOWN]
    return [*kept, (HEADER, vouch(roles.role).encode())]
