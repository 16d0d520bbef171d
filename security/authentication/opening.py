"""Creates a server's authenticator; imports no providers if authentication is disabled."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from .settings import ServerSecurity

if TYPE_CHECKING:
    from .authenticator import Authenticator


def open_authenticator(settings: ServerSecurity, clock: Callable[[], float] = time.time) -> Authenticator | None:
    """Return the configured authenticator, or None if disabled. Blocking: reads files.

    Raises:
        InvalidConfig: a setting is missing or invalid; the message names it.
    """
    if not settings.enabled:
        return None
    from .authenticator import Authenticator
    from .providers import load_providers

    return Authenticator(settings, load_providers(settings), clock)
