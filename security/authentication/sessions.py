"""Expiry and renewal of an authenticated connection's credentials.

Source: Pulsar's ServerCnx.refreshAuthenticationCredentials; the security reference, section 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from ...errors import MagnetarError
from ..roles import Roles
from .provider import Identity


class RoleChanged(MagnetarError):
    """The credentials for renewing a session belong to another role."""


class Check(Enum):
    """The result of checking a session's credentials."""

    KEEP = "the credentials are valid"
    CHALLENGE = "the credentials have expired: request new ones"
    CLOSE = "the credentials have expired and cannot be renewed"


@dataclass(frozen=True, slots=True)
class Session:
    """The roles of a connection, and its renewable credentials.

    Attributes:
        roles: the client's roles; its `expires_at` is the earlier of the two expiry times.
        method: the method of the renewable credentials; empty for the anonymous role.
        expires_at: expiry time of the renewable credentials; None for never.
        ends_at: time when the session ends regardless, because a proxy's credentials expire, which its client cannot
            renew; None for never.
        is_forwarded: whether the renewable credentials were forwarded by a proxy.
    """

    roles: Roles
    method: str
    expires_at: float | None = None
    ends_at: float | None = None
    is_forwarded: bool = False

    @classmethod
    def of(cls, roles: Roles, own: tuple[str, Identity], original: tuple[str, Identity | None]) -> Session:
        """Return the session of a role and its original role, if any.

        Args:
            roles: both roles.
            own: method and identity of the peer.
            original: method and identity of the original role; the method is empty if the proxy only named the role.
        """
        method, identity = own
        original_method, first = original
        if first is None:
            session = cls(roles, method, identity.expires_at)
        elif original_method:
            session = cls(roles, original_method, first.expires_at, identity.expires_at, is_forwarded=True)
        else:
            session = cls(roles, method, ends_at=identity.expires_at)
        return session._dated()

    def _dated(self) -> Session:
        ends = [one for one in (self.expires_at, self.ends_at) if one is not None]
        return replace(self, roles=replace(self.roles, expires_at=min(ends, default=None)))

    def renewed(self, identity: Identity) -> Session:
        """Return the session with new credentials.

        Raises:
            RoleChanged: the credentials belong to another role.
        """
        expected = self.roles.original if self.is_forwarded else self.roles.role
        if identity.role != expected:
            raise RoleChanged(f"renewed credentials have role {identity.role!r}: expected {expected!r}")
        return replace(self, expires_at=identity.expires_at)._dated()

    def check(self, now_s: float, *, is_asked: bool, can_answer: bool) -> Check:
        """Return what to do about the credentials at this time.

        Args:
            now_s: seconds since the epoch.
            is_asked: whether an AUTH_CHALLENGE is pending.
            can_answer: whether the client supports challenges (`supports_auth_refresh`).
        """
        if self.ends_at is not None and now_s > self.ends_at:
            return Check.CLOSE
        if self.expires_at is None or now_s <= self.expires_at:
            return Check.KEEP
        return Check.CHALLENGE if can_answer and not is_asked else Check.CLOSE
