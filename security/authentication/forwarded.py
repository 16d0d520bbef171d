"""Roles that a broker forwards to its worker, for clients that only the broker can authenticate, e.g. by certificate.

Broker and worker of a `standalone` share a key that is generated at each start and passed through the worker's pipe.
The broker uses it to sign the client's role, valid for a minute, which the worker checks before any other credentials.
User tokens are signed with other keys, and no configuration file can set this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...errors import AuthenticationError
from .provider import AuthenticationProvider, Identity, Peer
from .settings import ServerSecurity
from .tokens import judge, secret_verifier

HEADER = "x-magnetar-forwarded"
LIFE_S = 60


def forwarded_token(role: str, key: bytes, now_s: float) -> str:
    """Return the header value for a request that is forwarded on behalf of a role."""
    import jwt

    return jwt.encode({"sub": role, "exp": int(now_s) + LIFE_S}, key, "HS256")


class ForwardedProvider(AuthenticationProvider):
    """Accepts roles signed by the broker with `forward_key`."""

    method = "forwarded"
    is_blocking = False

    def __init__(self, settings: ServerSecurity) -> None:
        self._verifier = secret_verifier(bytes.fromhex(settings.forward_key), "forward_key")
        self._settings = ServerSecurity()

    def authenticate(self, data: bytes, peer: Peer, now_s: float) -> Identity:
        """Return the identity that the broker forwards."""
        identity = judge(self._verifier.claims(data), self._settings, now_s)
        if identity.role is None or identity.expires_at is None:
            raise AuthenticationError("the forwarded token has no role or no expiry")
        # The minute limits replays. The broker checks the expiry of the client's own credentials.
        return replace(identity, expires_at=None)

    def http_data(self, headers: Mapping[str, str], peer: Peer) -> bytes | None:
        """Return the signed role, or None."""
        value = headers.get(HEADER)
        return None if value is None else value.encode()
