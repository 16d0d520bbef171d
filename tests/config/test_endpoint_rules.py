"""Rules of consumerProperties and producerConfig, and what is refused where."""

from __future__ import annotations

from typing import Any

import pytest
from magnetar.client.config import ConsumerConfig
from magnetar.config.connector_conversion import check_source, read_source_config
from magnetar.config.consumer_properties import KNOWN, read_consumer_properties
from magnetar.config.conversion import from_details, merge, read_function_config, to_details, to_json
from magnetar.config.rules import check, with_defaults
from magnetar.errors import InvalidConfig
from magnetar.wire import functions_pb2 as records

from tests.config.test_rules import registered


def refusal(**fields: Any) -> str:
    with pytest.raises(InvalidConfig) as caught:
        registered(**fields)
    return str(caught.value)


@pytest.mark.parametrize("name", KNOWN)
def test_property_is_a_setting_of_the_consumer(name: str) -> None:
    text = "true" if name in ("readCompacted", "replicateSubscriptionState") or name.startswith("autoAck") else "7000"
    settings = read_consumer_properties({name: text})
    consumer = ConsumerConfig(type="Failover", **settings)
    assert consumer != ConsumerConfig(type="Failover")


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"receiverQueSize": "5"}, "unknown property 'receiverQueSize': did you mean receiverQueueSize?"),
        ({"zzz": "5"}, "unknown property 'zzz': expected one of acknowledgementsGroupTimeMicros, "),
        ({"subscriptionName": "s"}, "consumerProperties.subscriptionName is not supported: set subName instead"),
        ({"priorityLevel": "-1"}, "consumerProperties.priorityLevel must be a whole number from 0 to 2147483647, not"),
        ({"priorityLevel": "2147483648"}, "must be a whole number from 0 to 2147483647, not"),
        ({"priorityLevel": "٣"}, "must be a whole number from 0 to"),
        ({"priorityLevel": "9" * 5000}, "must be a whole number from 0 to"),
        ({"receiverQueueSize": "nan"}, "must be a whole number from 0 to"),
        ({"readCompacted": "yes"}, "must be true or false"),
        ({"readCompacted": "true"}, "readCompacted requires retainOrdering"),
    ],
)
def test_a_property_that_has_no_effect_is_refused(properties: dict[str, str], reason: str) -> None:
    text = refusal(inputSpecs={"in": {"consumerProperties": properties}})
    assert text.startswith("inputSpecs[in].consumerProperties")
    assert reason in text
    assert len(text) < 600


def test_a_queue_size_that_is_given_twice_is_refused() -> None:
    spec = {"consumerProperties": {"receiverQueueSize": "5"}, "receiverQueueSize": 5}
    assert "duplicates the field receiverQueueSize: set only one of them" in refusal(inputSpecs={"in": spec})


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"producerConfig": {"maxPendingMessages": -1}}, "invalid producerConfig.maxPendingMessages -1: expected 0 to"),
        ({"producerConfig": {"maxPendingMessages": 2**31}}, "producerConfig.maxPendingMessages 2147483648: expected"),
        (
            {"producerConfig": {"batchingConfig": {"batchingMaxBytes": 2**40}}},
            "batchingMaxBytes 1099511627776: expected",
        ),
        ({"producerConfig": {"batchingConfig": {"enable": True}}}, "unknown field enable: did you mean enabled?"),
        ({"producerConfig": {"batchBuilder": "key"}}, "batchBuilder 'key': expected one of DEFAULT, KEY_BASED"),
        (
            {"batchBuilder": "KEY_BASED", "producerConfig": {"batchBuilder": "DEFAULT"}},
            "batchBuilder has conflicting values DEFAULT and KEY_BASED: set only one of them",
        ),
        (
            {"producerConfig": {"batchingConfig": {"roundRobinRouterBatchingPartitionSwitchFrequency": 5}}},
            "SwitchFrequency: partitions are switched after each entry; remove this field",
        ),
        (
            {"processingGuarantees": "EFFECTIVELY_ONCE", "producerConfig": {"batchingConfig": {"enabled": False}}},
            "producerConfig.batchingConfig: with EFFECTIVELY_ONCE, the outputs of an input entry always form one entry",
        ),
        (
            {"runtimeEnv": "spark", "producerConfig": {"maxPendingMessages": 5}},
            "Spark runs use fixed producer settings",
        ),
        ({"runtimeEnv": "spark", "batchBuilder": "DEFAULT"}, "runs use fixed producer settings"),
        ({"runtimeEnv": "spark", "skipToLatest": True}, "skipToLatest is not supported with runtimeEnv spark"),
        (
            {"runtimeEnv": "spark", "retainKeyOrdering": True},
            "retainKeyOrdering is not supported with runtimeEnv spark",
        ),
        (
            {"runtimeEnv": "spark", "inputSpecs": {"in": {"consumerProperties": {"priorityLevel": "1"}}}},
            "consumerProperties: runs have no consumer; remove this field",
        ),
        (
            {"processingGuarantees": "EFFECTIVELY_ONCE", "skipToLatest": True},
            "skipToLatest is not supported with EFFECTIVELY_ONCE",
        ),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(fields: dict[str, Any], reason: str) -> None:
    assert reason in refusal(**fields)


def test_a_source_takes_the_compression_alone() -> None:
    given: list[dict[str, Any]] = [{"maxPendingMessages": 5}, {"batchBuilder": "DEFAULT"}, {"batchingConfig": {}}]
    for producer in given:
        fields = {"tenant": "t", "namespace": "n", "name": "s", "topicName": "t", "archive": "builtin://x"}
        config = with_defaults(read_source_config({**fields, "producerConfig": producer}))
        (name,) = producer
        with pytest.raises(InvalidConfig, match=f"^producerConfig.{name}: sources use fixed batching settings"):
            check_source(config)


def test_the_batch_builder_of_the_config_is_that_of_the_producer() -> None:
    stored = to_details(registered(batchBuilder="KEY_BASED", producerConfig={"compressionType": "ZSTD"}))
    assert stored.sink.producerSpec.batchBuilder == "KEY_BASED"
    answer = to_json(records.FunctionMetaData(functionDetails=stored))
    assert answer["producerConfig"]["batchBuilder"] == "KEY_BASED"
    assert answer["producerConfig"]["compressionType"] == "ZSTD"
    # An update that names it alone leaves the rest.
    before = from_details(to_details(registered(producerConfig={"compressionType": "ZSTD"})))
    after = merge(before, read_function_config({"batchBuilder": "KEY_BASED"}))
    check(after)
    spec = to_details(after).sink.producerSpec
    assert (spec.batchBuilder, spec.compressionType) == ("KEY_BASED", records.CompressionType.ZSTD)
