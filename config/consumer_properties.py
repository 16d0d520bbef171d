"""`consumerProperties` of an input: consumer settings by their names in Pulsar's Java client.

Values are strings, because a record's map has no other type. Settings that an instance determines itself, or that have
a separate field, are rejected by name, as are unknown names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..errors import InvalidConfig
from .table import shown

_INT32_MAX = (1 << 31) - 1


class _Property(NamedTuple):
    """How a property is read: the corresponding client setting, and the parser of its value."""

    setting: str
    read: Callable[[str], Any]


def _number(least: int, most: int, divisor: int = 1) -> Callable[[str], Any]:
    def read(text: str) -> float:
        if not text.isascii() or not text.isdigit() or len(text) > 19 or not least <= int(text) <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return int(text) if divisor == 1 else int(text) / divisor

    return read


def _milliseconds(text: str) -> int:
    micros: int = _number(0, (1 << 63) - 1)(text)
    return -(-micros // 1000)


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


KNOWN: Mapping[str, _Property] = {
    "acknowledgementsGroupTimeMicros": _Property("ack_grouping_ms", _number(0, _INT32_MAX, 1000)),
    "maxAcknowledgmentGroupSize": _Property("ack_grouping_max", _number(1, _INT32_MAX)),
    "negativeAckRedeliveryDelayMicros": _Property("negative_ack_delay_ms", _milliseconds),
    "maxTotalReceiverQueueSizeAcrossPartitions": _Property(
        "max_receiver_queue_size_across_partitions", _number(1, _INT32_MAX)
    ),
    "receiverQueueSize": _Property("receiver_queue_size", _number(0, _INT32_MAX)),
    "priorityLevel": _Property("priority_level", _number(0, _INT32_MAX)),
    "readCompacted": _Property("read_compacted", _flag),
    "replicateSubscriptionState": _Property("replicate_subscription_state_enabled", _flag),
    "autoUpdatePartitionsIntervalSeconds": _Property("partition_update_s", _number(1, _INT32_MAX)),
    "patternAutoDiscoveryPeriod": _Property("pattern_update_s", _number(1, _INT32_MAX)),
    "maxPendingChunkedMessage": _Property("max_pending_chunked_message", _number(1, _INT32_MAX)),
    "autoAckOldestChunkedMessageOnQueueFull": _Property("auto_ack_oldest_chunked_message_on_queue_full", _flag),
    "expireTimeOfIncompleteChunkedMessageMillis": _Property(
        "expire_time_of_incomplete_chunked_message_ms", _number(0, _INT32_MAX)
    ),
}
"""Settings of our client by Pulsar's name."""

_INSTEAD = {
    "ackTimeoutMillis": "set timeoutMs instead",
    "tickDurationMillis": "set timeoutMs instead",
    "consumerName": "instances set consumer names",
    "cryptoFailureAction": "set cryptoConfig instead",
    "cryptoKeyReader": "set cryptoConfig instead",
    "deadLetterPolicy": "set maxMessageRetries and deadLetterTopic instead",
    "properties": "instances set the properties to identify themselves",
    "regexSubscriptionMode": "the pattern's domain determines the mode",
    "retryEnable": "set maxMessageRetries instead",
    "subscriptionInitialPosition": "set subscriptionPosition instead",
    "subscriptionName": "set subName instead",
    "subscriptionType": "set retainOrdering or retainKeyOrdering instead",
    "topicNames": "set inputs instead",
    "topicsPattern": "set the field topicsPattern instead",
}


def read_consumer_properties(properties: Mapping[str, str], where: str = "consumerProperties") -> dict[str, Any]:
    """Return the corresponding settings of our client's consumer, by our names.

    Args:
        properties: properties by Pulsar's names.
        where: name of the map, for error messages.

    Raises:
        InvalidConfig: a property is unknown, must be set elsewhere, or has an invalid value.
    """
    settings = {}
    for name, text in properties.items():
        if name in _INSTEAD:
            raise InvalidConfig(f"{where}.{name} is not supported: {_INSTEAD[name]}")
        if name not in KNOWN:
            from difflib import get_close_matches  # slow to import, and only needed after a typo

            near = get_close_matches(name, KNOWN, n=1, cutoff=0.5)
            advice = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(sorted(KNOWN))}"
            raise InvalidConfig(f"{where}: unknown property {name[:80]!a}: {advice}")
        known = KNOWN[name]
        try:
            settings[known.setting] = known.read(text)
        except ValueError as error:
            raise InvalidConfig(f"{where}.{name} must be {error}, not {shown(text)}") from None
    return settings
