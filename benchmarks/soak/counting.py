"""The two functions of a soak: each counts messages by key and forwards them; both fail for one message in a thousand.

This file is deployed to the worker alone, so it imports no other modules of this package.
"""

from __future__ import annotations

import json
from typing import Any

FAILS_EVERY = 1000
DEAD_LETTERS = "deadLetterTopic"


class Unlucky(Exception):
    """Error raised for the failing messages."""


def at_least_once(text: str, context: Any) -> str:
    """Raise at the first attempt for an unlucky message, which is redelivered after a minute."""
    if json.loads(text)["id"] % FAILS_EVERY == 0 and context.get_current_record().redelivery_count == 0:
        raise Unlucky(text)
    context.incr_counter(context.get_partition_key(), 1)
    return text


def effectively_once(text: str, context: Any) -> str | None:
    """Send an unlucky message to the dead-letter topic, as raising would stop the instance to preserve the order."""
    try:
        _work(text)
    except Unlucky:
        context.publish(context.get_user_config_value(DEAD_LETTERS), text)
        context.incr_counter("dead letters", 1)
        return None
    context.incr_counter(context.get_partition_key(), 1)
    return text


def _work(text: str) -> None:
    if json.loads(text)["id"] % FAILS_EVERY == 0:
        raise Unlucky(text)
