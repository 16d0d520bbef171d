"""Opens the authentication of a server; where it is off, nothing of it is imported."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from .settings import ServerSecurity

if TYPE_CHECKING:
    from .authenticator import Authenticator


def open_authenticator(settings: ServerSecurity, clock: Callable[[], float] = time.time) -> Authenticator | None:
    """Return the authentication that settings ask for, None if it is off; reads files, so never on an event loop.

    Raises:
        InvalidConfig: names the setting that is missing or wrong.
    """
    if not settings.enabled:
        return None
    from .authenticator import Authenticator
    from .providers import load_providers

    return Authenticator(settings, load_providers(settings), clock)
