"""The two functions of a soak: each counts messages by key and passes them on; both fail for one message in a thousand.

This is what the worker is given, so it imports nothing of its neighbours.
"""

from __future__ import annotations

import json
from typing import Any

FAILS_EVERY = 1000
DEAD_LETTERS = "deadLetterTopic"


class Unlucky(Exception):
    """What the failing messages raise."""


def at_least_once(text: str, context: Any) -> str:
    """Raise at the first try of an unlucky message, which comes again after a minute."""
    if json.loads(text)["id"] % FAILS_EVERY == 0 and context.get_current_record().redelivery_count == 0:
        raise Unlucky(text)
    context.incr_counter(context.get_partition_key(), 1)
    return text


def effectively_once(text: str, context: Any) -> str | None:
    """Pass an unlucky message to the topic of dead letters: raising would stop the instance, as order may not break."""
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
