"""Runtime of an instance whose record asks for one that this worker does not have."""

from __future__ import annotations

from ..errors import FunctionLoadError
from ..instance.spec import InstanceSpec
from .interface import Instance


class NoRuntime:
    """Starts nothing, and says why: the instance's status shows it, and no other instance is concerned."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    async def warm_up(self) -> None:  # noqa: D102  documented in interface.Runtime
        pass

    async def start(self, spec: InstanceSpec) -> Instance:  # noqa: D102
        raise FunctionLoadError(self._reason)

    async def close(self) -> None:  # noqa: D102
        pass
