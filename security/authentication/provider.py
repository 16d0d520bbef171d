"""Interface of authentication providers, which map credentials to a role or reject them.

A custom provider is a subclass, named in `authenticationProviders` as ``module.Class``:

    class Badges(AuthenticationProvider):
        method = "badge"

        def __init__(self, settings):
            self._file = settings.properties["badgeFile"]

        def authenticate(self, data, peer, now_s):
            role = lookup(self._file, data)
            if role is None:
                raise AuthenticationError("no such badge")
            return Identity(role)

        def http_data(self, headers, peer):
            badge = headers.get("x-badge")
            return None if badge is None else badge.encode()
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .settings import ServerSecurity


@dataclass(frozen=True, slots=True)
class Identity:
    """An authenticated identity.

    Attributes:
        role: the role; None for valid credentials without one.
        expires_at: expiry time of the credentials, in seconds since the epoch; None for never.
    """

    role: str | None
    expires_at: float | None = None


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a connection.

    Attributes:
        address: for logs.
        certificate: the peer's certificate as returned by `ssl.SSLSocket.getpeercert`; empty unless verified.
    """

    address: str = ""
    certificate: Mapping[str, Any] | None = None


class AuthenticationProvider:
    """An authentication method; created once, when the server starts.

    Attributes:
        method: the method's name, such as ``token``: `auth_method_name` of the binary protocol.
        is_blocking: whether `authenticate` may block or take longer than a fraction of a millisecond. If so, it is
            called concurrently on a few threads, otherwise on the event loop.
    """

    method: str = ""
    is_blocking: bool = True

    def __init__(self, settings: ServerSecurity) -> None:
        """Read the settings and the files that they name; called on a thread.

        Raises:
            InvalidConfig: a setting is missing or invalid.
        """

    def authenticate(self, data: bytes, peer: Peer, now_s: float) -> Identity:
        """Return the identity that credentials prove.

        Args:
            data: `auth_data` of the binary protocol, or the result of `http_data`.
            peer: the client.
            now_s: seconds since the epoch.

        Raises:
            AuthenticationError: the credentials are invalid. The reason is logged but not sent to the client; it must
                not contain secrets.
        """
        raise NotImplementedError

    def http_data(self, headers: Mapping[str, str], peer: Peer) -> bytes | None:
        """Return a request's credentials for this method, or None.

        Args:
            headers: headers by lower-case name.
            peer: the client.
        """
        return None

    def close(self) -> None:
        """Release resources; called when the server has stopped."""
