"""The role of who asks, as authentication found it and authorization judges it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Roles:
    """Who asks.

    Attributes:
        role: of who connected; None where a credential is valid and names no role, which nearly no operation allows.
        original: for whom a proxy asks; None where nobody stands between. Both must be allowed what is asked.
        expires_at: when the credential ends, in seconds since the epoch; None for never.
    """

    role: str | None
    original: str | None = None
    expires_at: float | None = None
