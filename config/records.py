"""FunctionConfig to the record that the metadata topic keeps, back again, and to the JSON that `get` answers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from ..wire.functions_pb2 import FunctionDetails, FunctionMetaData
from .function_config import (
    EFFECTIVELY_ONCE,
    FIELDS_BY_NAME,
    RUNTIME_OPTIONS,
    SPARK,
    FunctionConfig,
    ProducerSpec,
    Resources,
)
from .reading import runtime_options
from .table import from_message, show, to_message


def to_details(config: FunctionConfig) -> FunctionDetails:
    """Return the record of a complete, checked config."""
    values = to_message(config)
    values["source"]["subscriptionType"] = _subscription_type(config)
    values["subscriptionPosition"] = values["source"]["subscriptionPosition"]
    values["componentType"] = "FUNCTION"
    options = {name: getattr(config, FIELDS_BY_NAME[name].attribute) for name in RUNTIME_OPTIONS}
    chosen = {name: value for name, value in options.items() if value is not None}
    values["customRuntimeOptions"] = json.dumps(chosen) if chosen else ""
    return FunctionDetails(**values)


def _subscription_type(config: FunctionConfig) -> str:
    if config.retain_ordering or config.processing_guarantees == EFFECTIVELY_ONCE or config.runtime_env == SPARK:
        return "FAILOVER"
    return "KEY_SHARED" if config.retain_key_ordering else "SHARED"


def from_details(details: FunctionDetails) -> FunctionConfig:
    """Return the complete config that a record came from."""
    config = from_message(FunctionConfig, details)
    return replace(
        config,
        # Records of ours have all of these; those of other systems may have them empty.
        user_config=config.user_config or {},
        max_message_retries=details.retryDetails.maxMessageRetries if details.HasField("retryDetails") else None,
        parallelism=details.parallelism,
        resources=Resources(cpu=details.resources.cpu, ram=details.resources.ram, disk=details.resources.disk),
        producer=from_message(ProducerSpec, details.sink.producerSpec),
        **runtime_options(config.custom_runtime_options),
    )


def to_json(metadata: FunctionMetaData) -> dict[str, Any]:
    """Return what GET answers: Pulsar's fields in Pulsar's order, without those that have no value.

    `runtimeEnv` and `minPartitions` are our additions and only there when they were chosen.
    """
    return show(from_details(metadata.functionDetails))
