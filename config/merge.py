"""What an update changes: the sent settings over the stored ones, but for those that the table says are fixed.

Sent means not None; of what is not replaced as a whole, only `logTopic` and `output` can be cleared, by an empty text.
`subscriptionPosition` says where a new subscription begins and has no meaning for one that exists. Pulsar's own tools
send its default, Latest, with every update, so that counts as not sent; Earliest is a wish, and refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..errors import InvalidConfig
from .function_config import SPARK, ConsumerSpec, FunctionConfig
from .table import check_fixed, overlay


def merge(existing: FunctionConfig, sent: FunctionConfig) -> FunctionConfig:
    """Return the config after an update.

    Args:
        existing: the complete stored config.
        sent: what the request says.

    Raises:
        InvalidConfig: the update alters what cannot be altered.
    """
    check_fixed(existing, sent)
    _check_position(existing, sent)
    _check_runtime(existing, sent)
    resources = existing.resources
    if resources is not None and sent.resources is not None:
        resources = overlay(resources, sent.resources)
    return replace(
        overlay(existing, sent),
        input_specs=_merge_inputs(existing.input_specs, sent.input_specs),
        resources=resources or sent.resources,
        subscription_position=existing.subscription_position,
        refused=sent.refused,
    )


def _check_position(existing: FunctionConfig, sent: FunctionConfig) -> None:
    if sent.subscription_position == "Earliest" != existing.subscription_position:
        raise InvalidConfig(
            "subscriptionPosition cannot be altered: the subscription exists and goes on where it is; leave it out, and"
            " let functions reset-cursor process again what came before"
        )


def _check_runtime(existing: FunctionConfig, sent: FunctionConfig) -> None:
    if sent.runtime_env is not None and sent.runtime_env != existing.runtime_env and SPARK in (
        sent.runtime_env, existing.runtime_env,
    ):  # fmt: skip
        raise InvalidConfig(
            f"runtimeEnv {existing.runtime_env or 'process'} cannot be altered to {sent.runtime_env}: a Spark function"
            " keeps its place in another way; delete the function and create it anew"
        )


def _merge_inputs(existing: Mapping[str, ConsumerSpec], sent: Mapping[str, ConsumerSpec]) -> Mapping[str, ConsumerSpec]:
    for topic, spec in sent.items():
        if topic not in existing:
            raise InvalidConfig("Input Topics cannot be altered")
        if spec.is_regex_pattern != existing[topic].is_regex_pattern:
            raise InvalidConfig(f"isRegexPattern for input topic {topic} cannot be altered")
    # A bare mention (`inputs`) only names the topic; it must not wipe the serde of the stored spec.
    return {**existing, **{topic: spec for topic, spec in sent.items() if spec != ConsumerSpec()}}
