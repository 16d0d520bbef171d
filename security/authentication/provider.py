"""The interface of an authentication provider: who shows what becomes a role, or is refused.

A provider of one's own is a class of this, named in `authenticationProviders` as ``module.Class``:

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
    """Who somebody is.

    Attributes:
        role: None where the credential is valid and names no role.
        expires_at: when the credential ends, in seconds since the epoch; None for never.
    """

    role: str | None
    expires_at: float | None = None


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a connection.

    Attributes:
        address: for logs.
        certificate: its certificate as `ssl.SSLSocket.getpeercert` shows it, which is empty unless it was verified.
    """

    address: str = ""
    certificate: Mapping[str, Any] | None = None


class AuthenticationProvider:
    """One way to authenticate; made once, when the server starts.

    Attributes:
        method: the name of the method, such as ``token``: `auth_method_name` of the binary protocol.
        is_blocking: whether `authenticate` may take longer than a fraction of a millisecond, or wait. Then it is called
            in one of a few threads, by several at a time; else on the event loop.
    """

    method: str = ""
    is_blocking: bool = True

    def __init__(self, settings: ServerSecurity) -> None:
        """Take the settings, and read what they name; called in a thread.

        Raises:
            InvalidConfig: a setting is missing or wrong.
        """

    def authenticate(self, data: bytes, peer: Peer, now_s: float) -> Identity:
        """Return who shows these credentials.

        Args:
            data: `auth_data` of the binary protocol, or what `http_data` returned.
            peer: who shows them.
            now_s: seconds since the epoch.

        Raises:
            AuthenticationError: they are not good; the reason is logged, and shown to nobody. It must not have secrets.
        """
        raise NotImplementedError

    def http_data(self, headers: Mapping[str, str], peer: Peer) -> bytes | None:
        """Return what a request shows, None where it shows nothing for this method.

        Args:
            headers: by name in lower case.
            peer: who asks.
        """
        return None

    def close(self) -> None:
        """Release what is held; the server has stopped."""
