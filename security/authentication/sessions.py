"""An authenticated connection as its credentials come to their end: what is to be done, and what an answer changes.

Source: Pulsar's ServerCnx.refreshAuthenticationCredentials; reference of security, section 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from ...errors import MagnetarError
from ..roles import Roles
from .provider import Identity


class RoleChanged(MagnetarError):
    """Credentials that were to renew a session are those of another role."""


class Check(Enum):
    """What a look at a session's credentials comes to."""

    KEEP = "they are good"
    CHALLENGE = "they have ended: ask for new ones"
    CLOSE = "they have ended, and nobody can or will renew them"


@dataclass(frozen=True, slots=True)
class Session:
    """Who is connected, and whose credentials have to be renewed.

    Attributes:
        roles: who asks; `expires_at` is the earlier end.
        method: how the credentials were shown that can be renewed; empty for the anonymous role.
        expires_at: when these end; None for never.
        ends_at: when the session ends in any case; None for never. So it does with the credentials of a proxy, which
            its client cannot renew.
        is_forwarded: whether the credentials are those that a proxy passed on.
    """

    roles: Roles
    method: str
    expires_at: float | None = None
    ends_at: float | None = None
    is_forwarded: bool = False

    @classmethod
    def of(cls, roles: Roles, own: tuple[str, Identity], original: tuple[str, Identity | None]) -> Session:
        """Return the session of a role and, if there is one, its original.

        Args:
            roles: both.
            own: method and identity of who connects.
            original: those of the original; the method is empty where a proxy has only told its name.
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
            RoleChanged: they are somebody else's.
        """
        expected = self.roles.original if self.is_forwarded else self.roles.role
        if identity.role != expected:
            raise RoleChanged(f"the role was {expected!r} and would be {identity.role!r}")
        return replace(self, expires_at=identity.expires_at)._dated()

    def check(self, now_s: float, *, is_asked: bool, can_answer: bool) -> Check:
        """Return what is to be done at a moment; pure.

        Args:
            now_s: seconds since the epoch.
            is_asked: whether an AUTH_CHALLENGE is not answered yet.
            can_answer: whether the client said that it answers them (`supports_auth_refresh`).
        """
        if self.ends_at is not None and now_s > self.ends_at:
            return Check.CLOSE
        if self.expires_at is None or now_s <= self.expires_at:
            return Check.KEEP
        return Check.CHALLENGE if can_answer and not is_asked else Check.CLOSE
