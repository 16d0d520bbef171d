"""The logs of compacted views in the journal, and the records that make one the view of a topic's log.

Design: the log of a view is a hidden log, so the journal, checkpoints and reads treat it like any other. It is written
entry by entry and is unreferenced until one record makes it the view up to its horizon; the same record moves the
compaction cursor. A crash before the record leaves an unreferenced hidden log, which recovery drops; after it, the old
view is the unreferenced one. So there is always exactly one complete view.
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
"""Name prefix of hidden logs; no topic's name begins with it."""


class HiddenView(CompactedView):
    """A compacted view in a hidden log."""

    log: TopicLog

    def state(self) -> dict[str, Any]:
        """Return the state for catalogue and journal."""
        first = None if self.first is None else list(self.first)
        return {"view": self.log.id, "first": first, "horizon": list(self.horizon)}


def begin_view(log: TopicLog) -> TopicLog:
    """Return a new hidden log for a view of ``log``; it stays unreferenced until `switch_view`."""
    core = log.core
    id_ = core.ids.new_object()
    hidden = type(log)(core, id_, f"{HIDDEN}{log.id}:{id_}")
    core.logs.add(hidden)
    return hidden


def switch_view(log: TopicLog, hidden: TopicLog, first: Position | None, horizon: Position, done: Done) -> None:
    """Make a fully synced hidden log the view of ``log``, and move its compaction cursor to the horizon."""
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
        return  # it remains as a stale view
    core.logs.pop(hidden.name)
    ledgers = hidden.drop()
    core.record_removal(ledgers, done, encode_change({"do": "delete_log", "log": hidden.id}))


def stale_views(log: TopicLog) -> list[TopicLog]:
    """Return hidden logs of ``log`` that are not its view, left over from failed or missed drops."""
    begin = f"{HIDDEN}{log.id}:"
    current = log.view.log if log.view is not None else None
    return [each for name, each in log.core.logs.used.items() if name.startswith(begin) and each is not current]


def restore_view(log: TopicLog, state: Mapping[str, Any], logs_by_id: Mapping[int, TopicLog]) -> None:
    """Restore the view of a log from catalogue or journal."""
    first = state["first"]
    log.view = HiddenView(
        logs_by_id[state["view"]], None if first is None else Position(*first), Position(*state["horizon"])
    )
    log.has_changed()


def forget_unreferenced(core: StorageCore) -> None:
    """Drop, during recovery, hidden logs that are not a view; their files are removed as strays."""
    wanted = {log.view.log.name for log in core.logs.used.values() if log.view is not None}
    for log in [log for name, log in core.logs.used.items() if name.startswith(HIDDEN) and name not in wanted]:
        core.logs.pop(log.name)
        log.drop()
