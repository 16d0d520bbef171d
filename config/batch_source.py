"""`batchSourceConfig`: how a batch source discovers its tasks, and how the config is stored in a record.

In a record, it is part of the source's configs, under two separate keys, as in Pulsar.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..errors import InvalidConfig
from ..wire.functions_pb2 import FunctionDetails

CONFIG_KEY = "__BATCHSOURCECONFIGS__"
CLASS_KEY = "__BATCHSOURCECLASSNAME__"
_TRIGGER, _TRIGGER_CONFIG = "discoveryTriggererClassName", "discoveryTriggererConfig"

IMMEDIATE, CRON = "immediate", "cron"
TRIGGERS: Mapping[str, str] = {
    IMMEDIATE: IMMEDIATE,
    CRON: CRON,
    "org.apache.pulsar.io.batchdiscovery.ImmediateTriggerer": IMMEDIATE,
    "org.apache.pulsar.io.batchdiscovery.CronTriggerer": CRON,
}
"""The built-in triggers, by all their names. Any other name is a class in the package."""


def trigger_of(batch: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return the name of the trigger and its config."""
    name = batch[_TRIGGER]
    return TRIGGERS.get(name, name), batch.get(_TRIGGER_CONFIG) or {}


def check_batch(batch: Mapping[str, Any]) -> None:
    """Raise InvalidConfig for an invalid `batchSourceConfig`."""
    name = batch.get(_TRIGGER)
    if not name:
        raise InvalidConfig("BatchSourceConfig does not specify Discovery Trigger ClassName")
    if unknown := sorted(batch.keys() - {_TRIGGER, _TRIGGER_CONFIG}):
        raise InvalidConfig(
            f"batchSourceConfig: unknown field {unknown[0]!r}: expected {_TRIGGER} or {_TRIGGER_CONFIG}"
        )
    if not isinstance(name, str) or (name not in TRIGGERS and "." not in name):
        raise InvalidConfig(
            f"batchSourceConfig: invalid {_TRIGGER} {name!r}: expected {IMMEDIATE}, {CRON}, or module.Class of a "
            f"Trigger"
        )
    if not isinstance(batch.get(_TRIGGER_CONFIG) or {}, dict):
        raise InvalidConfig(f"batchSourceConfig: {_TRIGGER_CONFIG} must be a JSON object")


def updated_batch(existing: Mapping[str, Any] | None, sent: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the `batchSourceConfig` after an update, which keeps omitted fields.

    Raises:
        InvalidConfig: the update would turn a source into a batch source or vice versa, or change the trigger.
    """
    if sent is None:
        return existing
    if bool(existing) != bool(sent):
        raise InvalidConfig("Sources cannot be update between regular sources and batchsource")
    if not existing:
        return sent
    name = sent.get(_TRIGGER, existing[_TRIGGER])
    if TRIGGERS.get(name, name) != trigger_of(existing)[0]:
        raise InvalidConfig("DiscoverTriggerer class cannot be updated for batchsources")
    return {**existing, **sent}


def joined(configs: Mapping[str, Any], batch: Mapping[str, Any] | None, class_name: str | None) -> dict[str, Any]:
    """Return the configs of a record."""
    if not batch:
        return dict(configs)
    return {**configs, CONFIG_KEY: json.dumps(batch), CLASS_KEY: class_name or ""}


def parted(configs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Split the configs of a record into the connector's own settings and the `batchSourceConfig`."""
    own = {key: value for key, value in configs.items() if key not in (CONFIG_KEY, CLASS_KEY)}
    return own, json.loads(configs[CONFIG_KEY]) if CONFIG_KEY in configs else None


def is_batch(details: FunctionDetails) -> bool:
    """Return whether a record is a batch source."""
    return details.componentType == FunctionDetails.SOURCE and CONFIG_KEY in json.loads(details.source.configs or "{}")


def task_topic(details: FunctionDetails) -> str:
    """Return the task topic of a batch source."""
    return f"persistent://{details.tenant}/{details.namespace}/{details.name}-intermediate"


def task_subscription(details: FunctionDetails) -> str:
    """Return the subscription through which the instances share the tasks."""
    return f"BatchSourceExecutor-{details.tenant}/{details.namespace}/{details.name}"
