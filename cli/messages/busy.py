"""Error for a busy subscription: lists its consumers, and explains how to share it."""

from __future__ import annotations

from typing import Any

from ...errors import ConsumerBusy
from ...wire.topic_name import parse_topic_name
from ..failure import Failure
from ..rest import admin_of
from ..settings import Settings
from ..topics.subscriptions import topic_path

_ASK_TIMEOUT_S = 2.0


def who_is_there(settings: Settings, topic: str, subscription: str, error: ConsumerBusy) -> Failure:
    """Return the failure for a rejected consumer, with the existing consumers if the REST interface lists them."""
    path, rest = topic_path(topic), admin_of(settings, _ASK_TIMEOUT_S)
    held: dict[str, Any] = {}
    for kind in ("stats", "partitioned-stats"):
        try:
            held = rest.get(f"{path}/{kind}")["subscriptions"][subscription]
            break
        except (Failure, KeyError, TypeError):  # fall back to the broker's own message
            continue
    kind = held.get("type") or ""
    consumers = held.get("consumers") or []
    who = ", ".join(f"{one.get('consumerName')} at {str(one.get('address')).lstrip('/')}" for one in consumers[:3])
    more = f" and {len(consumers) - 3} more" if len(consumers) > 3 else ""
    by = f" by {who}{more} ({kind})" if who else f" ({error.__cause__ or error})"
    if kind and kind != "Exclusive":
        remedy = f"use -t {kind} to share it"
    else:
        remedy = "use -t Shared for both to share the messages"
    return Failure(
        f"subscription {subscription} of {parse_topic_name(topic)} is in use{by}: {remedy}, or choose another name"
        " with -s"
    )
