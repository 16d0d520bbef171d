"""Which headers tell a functions worker who asks, when the broker passes a request on; pure.

A caller that is known by what stands in its headers (a token, a password, nothing at all) is known by the worker in the
same way: they go on unchanged, `X-Original-Principal` of a proxy among them. A caller that is known by its client
certificate is not, for the connection to the worker is the broker's: for it the broker shows credentials of its own and
names the caller as the original. The broker's role has to be one of the worker's `proxyRoles` for that, and both roles
must be allowed what is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...security.roles import Roles
from ...web.answers import Refused

BY_CERTIFICATE = "tls"
_WHO_ASKS = frozenset((b"authorization", b"x-original-principal", b"x-pulsar-auth-method-name"))
_NOT_SEEN = (
    "this request is known by its client certificate only, which a functions worker does not see through the broker;"
    " show a token or a password, or ask the worker itself"
)
_TWO_PROXIES = "a proxy that is known by its client certificate cannot ask a functions worker through the broker"
_NO_HEADER = "the common name of the client certificate cannot stand in a header; use printable characters of Latin-1"

Headers = list[tuple[bytes, bytes]]


def needs_own(method: str) -> bool:
    """Return whether the broker has to show credentials of its own for a caller that is known by a method."""
    return method == BY_CERTIFICATE


def with_identity(
    headers: Iterable[tuple[bytes, bytes]], roles: Roles | None, method: str, own: Mapping[str, str] | None
) -> Headers:
    """Return the headers of a request to a worker.

    Args:
        headers: of the request that came, names in lower case.
        roles: who sent it; None without authentication.
        method: how that is known.
        own: headers with the broker's credentials; None where it has none.

    Raises:
        Refused: the worker could not be told who asks.
    """
    if roles is None or not needs_own(method):
        return list(headers)
    if own is None:
        raise Refused(401, _NOT_SEEN)
    if roles.original is not None:
        raise Refused(401, _TWO_PROXIES)
    name = roles.role or ""
    try:
        value = name.encode("latin-1") if name.isprintable() else b""
    except UnicodeEncodeError:
        value = b""
    if not value:
        raise Refused(401, _NO_HEADER)
    kept = [(header, one) for header, one in headers if header not in _WHO_ASKS]
    shown = [(header.lower().encode("latin-1"), one.encode("latin-1")) for header, one in own.items()]
    return [*kept, *shown, (b"x-original-principal", value)]
