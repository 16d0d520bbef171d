"""Broker settings that an administrator can change at run time. Changes survive a restart.

These are the dynamic settings of Pulsar that this broker reads on each use. A changed setting overrides
``broker.conf`` until the change is removed.

Source: the dynamic fields of Pulsar's ServiceConfiguration.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...errors import InvalidConfig
from ..config import BrokerConfig

_WHOLE = re.compile(r"-?[0-9]{1,19}")
_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?")
PARTITIONED, NON_PARTITIONED = "partitioned", "non-partitioned"
CREATION_TYPE, PARTITIONS = "allowAutoTopicCreationType", "defaultNumPartitions"


def _whole(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise ValueError("expected an integer")
    return int(text)


def _number(text: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise ValueError("expected a number")
    return float(text)


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("expected true or false")
    return text.lower() == "true"


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


@dataclass(frozen=True, slots=True)
class Setting:
    """A dynamic setting.

    Attributes:
        field: field of `BrokerConfig`.
        read: parses a string into the field's value; raises ValueError.
    """

    field: str
    read: Callable[[str], Any] = _whole


SETTINGS: Mapping[str, Setting] = {
    "allowAutoTopicCreation": Setting("allow_auto_topic_creation", _truth),
    "allowAutoSubscriptionCreation": Setting("allow_auto_subscription_creation", _truth),
    "subscriptionTypesEnabled": Setting("subscription_types", _words),
    "maxTenants": Setting("max_tenants"),
    "maxNamespacesPerTenant": Setting("max_namespaces_per_tenant"),
    "maxTopicsPerNamespace": Setting("max_topics_per_namespace"),
    "maxPublishRatePerTopicInMessages": Setting("publish_rate_messages"),
    "maxPublishRatePerTopicInBytes": Setting("publish_rate_bytes"),
    "maxNumPartitionsPerPartitionedTopic": Setting("max_partitions"),
    "maxConcurrentLookupRequest": Setting("max_lookups"),
    "maxMessagePublishBufferSizeInMB": Setting("publish_buffer_mb"),
    "isAllowAutoUpdateSchemaEnabled": Setting("allow_auto_update_schema", _truth),
    "brokerPublisherThrottlingMaxMessageRate": Setting("broker_publish_messages"),
    "brokerPublisherThrottlingMaxByteRate": Setting("broker_publish_bytes"),
    "dispatchThrottlingRateInMsg": Setting("broker_dispatch_messages"),
    "dispatchThrottlingRateInByte": Setting("broker_dispatch_bytes"),
    "dispatchThrottlingRatePerTopicInMsg": Setting("topic_dispatch_messages"),
    "dispatchThrottlingRatePerTopicInByte": Setting("topic_dispatch_bytes"),
    "dispatchThrottlingRatePerSubscriptionInMsg": Setting("subscription_dispatch_messages"),
    "dispatchThrottlingRatePerSubscriptionInByte": Setting("subscription_dispatch_bytes"),
    "subscribeThrottlingRatePerConsumer": Setting("subscribe_rate"),
    "subscribeRatePeriodPerConsumerInSecond": Setting("subscribe_period_s"),
    "brokerDeleteInactiveTopicsEnabled": Setting("delete_inactive_topics", _truth),
    "brokerDeleteInactiveTopicsFrequencySeconds": Setting("inactive_check_s", _number),
    "brokerDeleteInactiveTopicsMode": Setting("inactive_mode", str),
    "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds": Setting("inactive_after_s", _number),
}
NAMES = frozenset((*SETTINGS, CREATION_TYPE, PARTITIONS))
"""Names of the dynamic settings. The last two are combined into one field."""


def check(name: str, value: str) -> None:
    """Raise if a value is invalid for a setting.

    Args:
        name: one of `NAMES`.
        value: value as a string.

    Raises:
        InvalidConfig: the value is invalid; the message says what is expected.
    """
    overridden(BrokerConfig(), {name: value})


def overridden(config: BrokerConfig, values: Mapping[str, str]) -> BrokerConfig:
    """Return the broker's settings with some overridden.

    Args:
        config: settings with which the broker was started.
        values: strings by name; each name is in `NAMES`.

    Raises:
        InvalidConfig: a value is invalid.
    """
    fields: dict[str, Any] = {}
    for name, value in values.items():
        setting = SETTINGS.get(name)
        if setting is not None:
            try:
                fields[setting.field] = setting.read(value)
            except ValueError as error:
                raise InvalidConfig(f"invalid {name} {value[:80]!r}: {error}") from error
    if CREATION_TYPE in values or PARTITIONS in values:
        fields["auto_topic_partitions"] = _partitions(config, values)
    return replace(config, **fields) if fields else config


def _partitions(config: BrokerConfig, values: Mapping[str, str]) -> int:
    """Return the number of partitions of new topics, or 0 if they are not partitioned."""
    kind = values.get(CREATION_TYPE, PARTITIONED if config.auto_topic_partitions else NON_PARTITIONED)
    if kind not in (PARTITIONED, NON_PARTITIONED):
        raise InvalidConfig(f"invalid {CREATION_TYPE} {kind[:80]!r}: expected {PARTITIONED} or {NON_PARTITIONED}")
    try:
        number = _whole(values.get(PARTITIONS, str(config.auto_topic_partitions or 1)))
    except ValueError as error:
        raise InvalidConfig(f"invalid {PARTITIONS}: {error}") from error
    if number < 1:
        raise InvalidConfig(f"{PARTITIONS}={number} is out of range: expected 1 or more")
    return number if kind == PARTITIONED else 0


def shown(config: BrokerConfig) -> dict[str, str]:
    """Return the effective settings as strings."""
    texts = {name: as_text(getattr(config, setting.field)) for name, setting in SETTINGS.items()}
    partitions = config.auto_topic_partitions
    return texts | {
        CREATION_TYPE: PARTITIONED if partitions else NON_PARTITIONED,
        PARTITIONS: str(partitions or 1),
    }


def as_text(value: Any) -> str:
    """Return a value in the format of ``broker.conf``."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return f"{value:g}" if isinstance(value, float) else str(value)
