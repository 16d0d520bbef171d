"""SourceConfig and SinkConfig: what a record keeps of them, what GET answers, and what an update makes of both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from magnetar.config.connector_conversion import (
    check_sink,
    check_source,
    from_details,
    merge,
    read_sink_config,
    read_source_config,
    to_details,
    to_json,
)
from magnetar.config.rules import with_defaults
from magnetar.errors import InvalidConfig

NAMES = {"tenant": "t", "namespace": "n", "name": "c"}


def sink(**fields: Any) -> Any:
    config = with_defaults(read_sink_config({**NAMES, "inputs": ["in"], "archive": "builtin://console", **fields}))
    check_sink(config)
    return config


def source(**fields: Any) -> Any:
    config = with_defaults(read_source_config({**NAMES, "topicName": "out", "archive": "builtin://cron", **fields}))
    check_source(config)
    return config


def test_a_record_keeps_everything_of_a_sink() -> None:
    config = sink(
        configs={"a": [1, {"b": None}]}, secrets={"s": "x"}, parallelism=3, sourceSubscriptionName="sub",
        sourceSubscriptionPosition="Earliest", maxMessageRetries=2, deadLetterTopic="dlq", retainOrdering=True,
        negativeAckRedeliveryDelayMs=5, cleanupSubscription=False, logTopic="log", autoAck=False, runtimeEnv="thread",
        inputSpecs={"other": {"receiverQueueSize": 7}}, processingGuarantees="ATLEAST_ONCE",
    )  # fmt: skip
    assert from_details(to_details(config)) == config


def test_get_answers_the_fields_of_pulsar() -> None:
    answer = to_json(to_details(sink(inputs=["a", "b"])))
    spec = {"schemaProperties": {}, "consumerProperties": {}, "poolMessages": False, "regexPattern": False}
    assert answer == {
        **NAMES, "inputs": ["a", "b"], "inputSpecs": {"a": spec, "b": spec}, "archive": "builtin://console",
        "configs": {}, "parallelism": 1, "processingGuarantees": "ATLEAST_ONCE", "autoAck": True,
        "sourceSubscriptionPosition": "Latest", "retainOrdering": False, "retainKeyOrdering": False,
        "cleanupSubscription": True, "resources": {"cpu": 1.0, "ram": 1 << 30, "disk": 10 << 30},
    }  # fmt: skip
    answer = to_json(to_details(source()))
    assert {name: answer[name] for name in (*NAMES, "topicName", "archive", "configs", "parallelism")} == {
        **NAMES, "topicName": "out", "archive": "builtin://cron", "configs": {}, "parallelism": 1,
    }  # fmt: skip
    assert "inputs" not in answer


def test_a_sink_that_is_exact_shows_that_it_keeps_the_order() -> None:
    exact: Any = from_details(to_details(sink(processingGuarantees="EFFECTIVELY_ONCE")))
    assert exact.retain_ordering is True
    assert merge(exact, read_sink_config(to_json(to_details(exact)))) == exact


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"autoAck": False, "processingGuarantees": "ATMOST_ONCE"}, "When Guarantees == ATMOST_ONCE, autoAck must be"),
        ({"processingGuarantees": "MANUAL"}, "processingGuarantees MANUAL is not supported by sinks"),
        ({"secrets": {"password": {"path": "x"}}}, "secrets.password must be a string"),
        ({"retainOrdering": True, "retainKeyOrdering": True}, "Only one of retain ordering or retain key ordering"),
        ({"retainKeyOrdering": True, "processingGuarantees": "EFFECTIVELY_ONCE"}, "When effectively once processing"),
        ({"timeoutMs": -1}, "Sink timeout must be a positive number"),
        (
            {"inputs": ["a"], "deadLetterTopic": "public/default/a"},
            "DeadLetter topic public/default/a is also being used",
        ),
        ({"inputs": []}, "Must specify at least one topic of input"),
        ({"sinkType": "file"}, "sinkType file contradicts archive builtin://console: set only one of them"),
        ({"paralelism": 2}, "unknown field paralelism"),
        ({"topicsPattern": "a.*"}, "topicsPattern: "),
    ],
)
def test_what_is_wrong_with_a_sink_is_said_in_pulsars_words(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        sink(**fields)
    assert str(caught.value).startswith(reason)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"processingGuarantees": "ATMOST_ONCE"}, "Processing Guarantees cannot be altered"),
        ({"retainOrdering": True}, "Retain Ordering cannot be altered"),
        ({"autoAck": False}, "AutoAck cannot be altered"),
        ({"sourceSubscriptionName": "other"}, "Subscription Name cannot be altered"),
        ({"inputs": ["new"]}, "Input Topics cannot be altered"),
    ],
)
def test_an_update_cannot_alter_what_is_fixed(change: dict[str, Any], reason: str) -> None:
    before: Any = from_details(to_details(sink()))
    with pytest.raises(InvalidConfig) as caught:
        merge(before, read_sink_config(change))
    assert str(caught.value) == reason


def test_an_update_replaces_configs_and_keeps_what_is_not_sent() -> None:
    before: Any = from_details(to_details(sink(configs={"a": 1, "b": 2}, secrets={"s": "x"}, parallelism=2)))
    after = merge(before, read_sink_config({"configs": {"a": 3}}))
    assert (after.configs, after.secrets, after.parallelism) == ({"a": 3}, {"s": "x"}, 2)


@pytest.mark.parametrize("read", [read_source_config, read_sink_config])
def test_options_of_functions_are_refused(read: Callable[[dict[str, Any]], object]) -> None:
    with pytest.raises(InvalidConfig, match="sources and sinks support only runtimeEnv: remove the others"):
        read({"customRuntimeOptions": '{"runtimeEnv": "process", "minPartitions": 4}'})
