"""What a broker tells its worker about a caller that only the broker could know, such as one with a client certificate.

Broker and worker of one `standalone` share a key, made at each start and passed on the worker's pipe. The broker signs
the caller's role with it, for a minute; the worker believes that before anything else that the request shows. Tokens of
users are signed with other keys, and no setting of a file sets this one.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import AuthenticationError
from .provider import AuthenticationProvider, Identity, Peer
from .settings import ServerSecurity
from .tokens import judge, secret_verifier

HEADER = "x-magnetar-forwarded"
LIFE_S = 60


def forwarded_token(role: str, key: bytes, now_s: float) -> str:
    """Return what the header of a request says that is passed on for a role."""
    import jwt

    return jwt.encode({"sub": role, "exp": int(now_s) + LIFE_S}, key, "HS256")


class ForwardedProvider(AuthenticationProvider):
    """Takes the word of the broker; the key is `forward_key`."""

    method = "forwarded"
    is_blocking = False

    def __init__(self, settings: ServerSecurity) -> None:
        self._verifier = secret_verifier(bytes.fromhex(settings.forward_key), "forward_key")
        self._settings = ServerSecurity()

    def authenticate(self, data: bytes, peer: Peer, now_s: float) -> Identity:
        """Return for whom the broker asks."""
        identity = judge(self._verifier.claims(data), self._settings, now_s)
        if identity.role is None or identity.expires_at is None:
            raise AuthenticationError("what is passed on names nobody, or for ever")
        return identity

    def http_data(self, headers: Mapping[str, str], peer: Peer) -> bytes | None:
        """Return the broker's word, if it is there."""
        value = headers.get(HEADER)
        return None if value is None else value.encode()
