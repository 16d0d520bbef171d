"""Hidden logs, which store compacted views, and the journal records that install and drop them.

Design: a view is stored as a hidden log, so the journal, checkpoints and reads treat it like any other log. The hidden
log is written entry by entry and is unreferenced until a single record makes it the topic's view up to its horizon and
moves the compaction cursor. After a crash before that record, the new hidden log is unreferenced and recovery drops it;
after a later crash, recovery drops the old one. So exactly one complete view exists at any time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...wire.position import Position
from .compacted_view import COMPACTION_CURSOR, CompactedView
from .journal.format import encode_change

if TYPE_CHECKING:
    from .core import StorageCore
    from .ports import Done
    from .topic_log import TopicLog

HIDDEN = "compacted:"
"""Name prefix of hidden logs; no topic name starts with it."""


class HiddenView(CompactedView):
    """A compacted view that is stored in a hidden log."""

    log: TopicLog

    def state(self) -> dict[str, Any]:
        """Return the state to be stored in the catalogue and journal."""
        first = None if self.first is None else list(self.first)
        return {"view": self.log.id, "first": first, "horizon": list(self.horizon)}


def begin_view(log: TopicLog) -> TopicLog:
    """Return a new hidden log for a view of ``log``, which is unreferenced until `switch_view`."""
    core = log.core
    id_ = core.ids.new_object()
    hidden = type(log)(core, id_, f"{HIDDEN}{log.id}:{id_}")
    core.logs.add(hidden)
    return hidden


def switch_view(log: TopicLog, hidden: TopicLog, first: Position | None, horizon: Position, done: Done) -> None:
    """Install a fully synced hidden log as the view of ``log``, and move the compaction cursor to the horizon."""
    if log.core.refuses(done):
        return
    cursor = log.cursors.get(COMPACTION_CURSOR)
    log.view = view = HiddenView(hidden, first, horizon)
    if cursor is not None:
        cursor.apply_up_to(view.horizon)
    log.has_changed()
    change = {"do": "switch_view", "log": log.id, "cursor": cursor.id if cursor is not None else -1, **view.state()}
    log.core.record(done, encode_change(change))


def drop_hidden(hidden: TopicLog, done: Done) -> None:
    """Delete an unreferenced hidden log."""
    core = hidden.core
    if core.refuses(done):
        return  # the log remains as a stale view
    core.logs.pop(hidden.name)
    ledgers = hidden.drop()
    core.record_removal(ledgers, done, encode_change({"do": "delete_log", "log": hidden.id}))


def stale_views(log: TopicLog) -> list[TopicLog]:
    """Return the hidden logs of ``log`` that are not its current view and have not been dropped yet."""
    begin = f"{HIDDEN}{log.id}:"
    current = log.view.log if log.view is not None else None
    return [each for name, each in log.core.logs.used.items() if name.startswith(begin) and each is not current]


def restore_view(log: TopicLog, state: Mapping[str, Any], logs_by_id: Mapping[int, TopicLog]) -> None:
    """Restore the view of a log from its state in the catalogue or journal."""
    first = state["first"]
    log.view = HiddenView(
        logs_by_id[state["view"]], None if first is None else Position(*first), Position(*state["horizon"])
    )
    log.has_changed()


def forget_unreferenced(core: StorageCore) -> None:
    """Drop unreferenced hidden logs during recovery, which later removes their files as strays."""
    wanted = {log.view.log.name for log in core.logs.used.values() if log.view is not None}
    for log in [log for name, log in core.logs.used.items() if name.startswith(HIDDEN) and name not in wanted]:
        core.logs.pop(log.name)
        log.drop()
