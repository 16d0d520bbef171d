"""A client's roles: the result of authentication, and the input of authorization."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles of a client.

    Attributes:
        role: role of the connected peer; None for valid credentials without a role, which few operations accept.
        original: role of the proxy's client; None without a proxy. Both roles need permission.
        expires_at: expiry time of the credentials, in seconds since the epoch; None for never.
    """

    role: str | None
    original: str | None = None
    expires_at: float | None = None
