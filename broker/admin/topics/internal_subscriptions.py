"""Subscriptions that are the broker's own: no request creates, moves or deletes one.

`pulsar.dedup` is no subscription but the cursor with what deduplication knows; made anew or deleted by its name, it
would forget all. `__compaction` keeps what is not compacted yet: moved on, the last messages of keys would be missing
in the compacted view.
"""

from __future__ import annotations

from ....web.answers import Refused
from ...storage.cursors.names import is_internal
from ..call import Call


def new_subscription(call: Call) -> str:
    """Return the subscription in the path, for one that is to be created.

    Raises:
        Refused: 412, the name is reserved, too long, or has control characters.
    """
    name = call.new_subscription
    if is_internal(name):
        raise Refused(412, "Subscription with reserved subscription name attempted")
    if not name.strip():
        raise Refused(412, "Empty subscription name")
    return name


def own_subscription(call: Call) -> str:
    """Return the subscription in the path, for a request that moves or deletes it.

    Raises:
        Refused: 412, it is the broker's.
    """
    name = call.subscription
    if is_internal(name):
        raise Refused(412, f"Subscription {name} is internal to the broker: it cannot be moved or deleted")
    return name
