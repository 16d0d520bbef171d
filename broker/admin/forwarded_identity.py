"""Headers that identify the caller to a functions worker when the broker forwards a request. Pure logic.

A caller that authenticates by headers (token or password), or is anonymous, is authenticated by the worker in the same
way: its headers are passed on unchanged, including a proxy's `X-Original-Principal`. A client certificate cannot be
passed on, because the connection to the worker is the broker's own. The broker asserts the caller's role instead, which
only the worker that it supervises trusts; with any other worker such callers are rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...security.roles import Roles
from ...web.answers import Refused

HEADER = b"x-magnetar-forwarded"
"""Same as in `security.authentication.forwarded`, which a broker without authentication does not import."""
BY_CERTIFICATE = "tls"
_HOW_KNOWN = frozenset((b"authorization", b"x-pulsar-auth-method-name", HEADER))
_NOT_SEEN = (
    "this request is authenticated only by its client certificate, which the broker cannot forward to the functions"
    " worker: authenticate with a token or a password, or connect to the worker directly"
)

Headers = list[tuple[bytes, bytes]]
Vouch = Callable[[str], str]
"""A function that returns the broker's assertion of a role."""


def with_identity(
    headers: Iterable[tuple[bytes, bytes]], roles: Roles | None, method: str, vouch: Vouch | None
) -> Headers:
    """Return the headers for a request to a worker.

    Args:
        headers: headers of the incoming request, with names in lower case.
        roles: roles of the caller; None without authentication.
        method: the caller's authentication method.
        vouch: returns the broker's assertion of a role; None if the worker would not trust it.

    Raises:
        Refused: the caller's identity cannot be passed on to the worker.
    """
    if roles is None or method != BY_CERTIFICATE:
        return [(name, value) for name, value in headers if name != HEADER]
    if vouch is None or roles.role is None:
        raise Refused(401, _NOT_SEEN)
    kept = [(name, value) for name, value in headers if name not in _HOW_KNOWN]
    return [*kept, (HEADER, vouch(roles.role).encode())]
