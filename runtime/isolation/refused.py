"""Runtimes that cannot run user code as another user, and the error reported for their functions under isolation."""

from __future__ import annotations

from typing import NoReturn

from ...errors import FunctionLoadError
from ...instance.spec import InstanceSpec

REFUSED = {
    "thread": (
        "runtimeEnv thread is not allowed with processRuntimeUsers, as threads run inside the worker as root: use"
        " runtimeEnv process (--runtime process)"
    ),
    "spark": (
        "runtimeEnv spark is not allowed with processRuntimeUsers, as one driver process of the worker's user runs"
        " all tenants' jobs: use runtimeEnv process, or run Spark functions on a worker without that setting"
    ),
}
"""Reasons by runtime name."""


class RefusedRuntime:
    """Replaces a disallowed runtime; existing functions that use it show the reason in their status."""

    def __init__(self, reason: str) -> None:
        """Create a runtime that rejects all instances with the given reason."""
        self._reason = reason

    async def warm_up(self) -> None:
        """Do nothing."""

    async def start(self, spec: InstanceSpec) -> NoReturn:
        """Reject the instance.

        Raises:
            FunctionLoadError: always.
        """
        raise FunctionLoadError(self._reason)

    async def close(self) -> None:
        """Do nothing."""
