"""Settlements of sinks, at least once and at most once.

An input entry is acknowledged when all its records are written or dead-lettered; with at most once, before writing.
"""

from __future__ import annotations

from collections.abc import Callable

from ..acks.at_least_once import AtLeastOnce, AtMostOnce
from ..acks.pieces import OpenInput
from ..core import InstanceCore
from ..function_thread import Calls, Item
from ..loading.loader import Home
from .loaded_sink import LoadedSink
from .sink import SinkMaker
from .writing import Rules


class SinkSettlement(AtLeastOnce):
    """Settlement that writes records to a sink at least once."""

    maker: SinkMaker
    joins_chunks = False  # chunks are rejected individually

    def __init__(self, core: InstanceCore) -> None:
        """Create the settlement without opening anything."""
        super().__init__(core)
        self._loaded = LoadedSink(core, self)

    def _make_maker(self) -> SinkMaker:
        return SinkMaker(self._ship, self._drop_soon, self.publish)

    def _rules(self) -> Rules:
        return self._loaded.rules()

    def load(self, home: Home) -> Calls:
        """Create the sink, which is opened once the instance has its lock."""
        session = self.session()
        calls = self._loaded.load(home, self._rules(), session)
        self.maker.use(self._loaded.call, self._loaded.pauses, self._held)
        calls.idle = self._be_idle
        return calls

    def _be_idle(self) -> None:
        self.maker.go_on()
        self._loaded.call.idle()
        self.maker.go_on()
        self._store_changes()

    def _store_changes(self) -> None:
        """Store state changes that the sink made outside writes."""
        if (state := self.maker.state) is not None:
            changes, _ = state.take(ends_unit=True)
            if changes is not None:
                state.store(changes, self._idle_changes_stored)

    def _idle_changes_stored(self, error: BaseException | None) -> None:
        if error is not None:
            self._core.report("ERROR", f"cannot store state changes of the sink: {error}")

    def start(self, process: Callable[[Item], None]) -> None:
        """Start taking input."""
        self._loaded.start()
        super().start(process)

    async def _may_take(self, source: OpenInput) -> None:
        await self._loaded.pauses.resumed(source.topic).wait()

    def trouble(self) -> str:
        """Return what prevents the instance from continuing, or an empty string."""
        return self._loaded.trouble() or super().trouble()

    def request_stop(self) -> None:
        """End all waits of the sink's thread."""
        self._loaded.request_stop()
        super().request_stop()


class AtMostOnceSinkSettlement(SinkSettlement, AtMostOnce):
    """Settlement that acknowledges records before they are written; records of failed calls are lost, and counted."""

    def _rules(self) -> Rules:
        return self._loaded.rules()._replace(at_most_once=True)
