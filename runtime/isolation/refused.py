"""Runtimes that cannot run user code as another user, and the error of their functions under isolation."""

from __future__ import annotations

from typing import NoReturn

from ...errors import FunctionLoadError
from ...instance.spec import InstanceSpec

REFUSED = {
    "thread": (
        "runtimeEnv thread is refused under processRuntimeUsers: a thread runs in the worker, as root, and sees"
        " everything of it; use runtimeEnv process (--runtime process)"
    ),
    "spark": (
        "runtimeEnv spark is refused under processRuntimeUsers: the driver of all tenants' jobs is one process of the"
        " worker's user; use runtimeEnv process, or have a worker without that setting run Spark functions"
    ),
}
"""Reasons by runtime name."""


class RefusedRuntime:
    """Stands in for a rejected runtime; existing functions of it show the reason in their status."""

    def __init__(self, reason: str) -> None:
        """Prepare with a reason."""
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
