"""What an update changes: the sent settings over the stored ones, with Pulsar's list of what cannot be altered.

Sent means not None; of what is not replaced as a whole, only `logTopic` and `output` can be cleared, by an empty text.
`subscriptionPosition` says where a new subscription begins and has no meaning for one that exists. Pulsar's own tools
send its default, Latest, with every update, so that counts as not sent; Earliest is a wish, and refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..errors import InvalidConfig
from .function_config import SPARK, ConsumerSpec, FunctionConfig, Resources


def merge(existing: FunctionConfig, sent: FunctionConfig) -> FunctionConfig:
    """Return the config after an update; names come from `existing`.

    Args:
        existing: the complete stored config.
        sent: what the request says.

    Raises:
        InvalidConfig: the update alters what cannot be altered.
    """
    _check_fixed(existing, sent)
    replaced = {
        name: value
        for name in (
            "class_name", "output", "log_topic", "user_config", "secrets", "runtime_env", "max_message_retries",
            "dead_letter_topic", "parallelism", "window_config", "timeout_ms", "cleanup_subscription", "runtime_flags",
            "min_partitions", "producer", "forward_source_message_property", "file_name", "sent_fqfn",
        )
        if (value := getattr(sent, name)) is not None
    }  # fmt: skip
    for name in ("output", "log_topic"):
        if replaced.get(name) == "":
            replaced[name] = None
    return replace(
        existing,
        **replaced,
        input_specs=_merge_inputs(existing.input_specs, sent.input_specs),
        resources=_merge_resources(existing.resources, sent.resources),
        refused=sent.refused,
    )


def _check_fixed(existing: FunctionConfig, sent: FunctionConfig) -> None:
    fixed: tuple[tuple[str, str], ...] = (
        ("output_schema_type", "Output Schema mismatch"),
        ("output_serde_class_name", "Output Serde mismatch"),
        ("processing_guarantees", "Processing Guarantees cannot be altered"),
        ("retain_ordering", "Retain Ordering cannot be altered"),
        ("retain_key_ordering", "Retain Key Ordering cannot be altered"),
        ("runtime", "Runtime cannot be altered"),
        ("auto_ack", "AutoAck cannot be altered"),
        ("sub_name", "Subscription Name cannot be altered"),
    )
    for name, reason in fixed:
        value = getattr(sent, name)
        if value is not None and value != getattr(existing, name):
            raise InvalidConfig(reason)
    if sent.subscription_position == "Earliest" != existing.subscription_position:
        raise InvalidConfig(
            "subscriptionPosition cannot be altered: the subscription exists and goes on where it is; leave it out, and"
            " let functions reset-cursor process again what came before"
        )
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


def _merge_resources(existing: Resources | None, sent: Resources | None) -> Resources | None:
    if existing is None or sent is None:
        return sent or existing
    return Resources(
        cpu=existing.cpu if sent.cpu is None else sent.cpu,
        ram=existing.ram if sent.ram is None else sent.ram,
        disk=existing.disk if sent.disk is None else sent.disk,
    )
