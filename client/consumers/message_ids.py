"""Ids of what was received, as the caller of a consumer gives them."""

from __future__ import annotations

from ...wire.message_id import MessageId
from ..checks import check_message_id
from .ack_tracker import EntryKey
from .received import Message, ReceivedEntry


def given_id(what: Message | ReceivedEntry | MessageId) -> MessageId:
    """Return the id of what was received, or the one given if the protocol can carry it.

    Raises:
        InvalidConfig: it cannot.
    """
    if not isinstance(what, MessageId):
        return what.message_id
    check_message_id(what)
    return what


def position_of(entry: ReceivedEntry | MessageId) -> EntryKey:
    """Return the position of an entry; raises as `given_id`."""
    return entry.message_id[:2] if isinstance(entry, ReceivedEntry) else given_id(entry)[:2]
