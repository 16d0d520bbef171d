"""FunctionConfig to the record that the metadata topic keeps, back again, and to the JSON that `get` answers."""

from __future__ import annotations

import json
from typing import Any

from ..wire import functions_pb2 as records
from ..wire.functions_pb2 import (
    EARLIEST,
    FAILOVER,
    KEY_SHARED,
    LATEST,
    SHARED,
    CompressionType,
    FunctionDetails,
    FunctionMetaData,
    ProcessingGuarantees,
)
from .fields import min_partitions, runtime_options
from .function_config import SPARK, ConsumerSpec, FunctionConfig, ProducerSpec, Resources


def to_details(config: FunctionConfig) -> FunctionDetails:
    """Return the record of a complete, checked config."""
    resources = config.resources or Resources()
    details = FunctionDetails(
        tenant=config.tenant or "",
        namespace=config.namespace or "",
        name=config.name or "",
        className=config.class_name or "",
        logTopic=config.log_topic or "",
        processingGuarantees=config.processing_guarantees or "ATLEAST_ONCE",
        userConfig=json.dumps(dict(config.user_config or {}), separators=(",", ":")),
        runtime=config.runtime or "PYTHON",
        autoAck=config.auto_ack is not False,
        parallelism=config.parallelism or 1,
        resources=records.Resources(cpu=resources.cpu, ram=resources.ram, disk=resources.disk),
        componentType=FunctionDetails.FUNCTION,
        customRuntimeOptions=_runtime_options(config),
        retainOrdering=bool(config.retain_ordering),
        retainKeyOrdering=bool(config.retain_key_ordering),
        subscriptionPosition=_position(config),
    )
    _fill_source(details.source, config)
    _fill_sink(details.sink, config)
    return details


def _runtime_options(config: FunctionConfig) -> str:
    options = {"runtimeEnv": config.runtime_env, "minPartitions": config.min_partitions}
    chosen = {name: value for name, value in options.items() if value is not None}
    return json.dumps(chosen) if chosen else ""


def _position(config: FunctionConfig) -> records.SubscriptionPosition:
    return EARLIEST if config.subscription_position == "Earliest" else LATEST


def _fill_source(source: records.SourceSpec, config: FunctionConfig) -> None:
    if config.retain_ordering or config.processing_guarantees == "EFFECTIVELY_ONCE" or config.runtime_env == SPARK:
        source.subscriptionType = FAILOVER
    else:
        source.subscriptionType = KEY_SHARED if config.retain_key_ordering else SHARED
    source.subscriptionName = config.sub_name or ""
    source.subscriptionPosition = _position(config)
    source.cleanupSubscription = config.cleanup_subscription is not False
    source.timeoutMs = config.timeout_ms or 0
    for topic, spec in config.input_specs.items():
        record = source.inputSpecs[topic]
        record.schemaType = spec.schema_type or ""
        record.serdeClassName = spec.serde_class_name or ""
        record.isRegexPattern = spec.is_regex_pattern
        record.poolMessages = spec.pool_messages
        if spec.receiver_queue_size is not None:
            record.receiverQueueSize.value = spec.receiver_queue_size


def _fill_sink(sink: records.SinkSpec, config: FunctionConfig) -> None:
    sink.topic = config.output or ""
    sink.serDeClassName = config.output_serde_class_name or ""
    sink.schemaType = config.output_schema_type or ""
    sink.forwardSourceMessageProperty = config.forward_source_message_property is not False
    producer = config.producer or ProducerSpec()
    sink.producerSpec.MergeFrom(records.ProducerSpec(compressionType=producer.compression_type or "LZ4"))


def from_details(details: FunctionDetails) -> FunctionConfig:
    """Return the complete config that a record came from."""
    source, sink = details.source, details.sink
    return FunctionConfig(
        tenant=details.tenant,
        namespace=details.namespace,
        name=details.name,
        class_name=details.className or None,
        input_specs={topic: _consumer(spec) for topic, spec in source.inputSpecs.items()},
        output=sink.topic or None,
        producer=_producer(sink.producerSpec),
        output_schema_type=sink.schemaType or None,
        output_serde_class_name=sink.serDeClassName or None,
        log_topic=details.logTopic or None,
        processing_guarantees=ProcessingGuarantees.Name(details.processingGuarantees),
        retain_ordering=details.retainOrdering,
        retain_key_ordering=details.retainKeyOrdering,
        forward_source_message_property=sink.forwardSourceMessageProperty,
        user_config=json.loads(details.userConfig or "{}"),
        secrets=json.loads(details.secretsMap) if details.secretsMap else None,
        runtime=FunctionDetails.Runtime.Name(details.runtime),
        runtime_env=runtime_options(details.customRuntimeOptions),
        min_partitions=min_partitions(details.customRuntimeOptions),
        auto_ack=details.autoAck,
        max_message_retries=details.retryDetails.maxMessageRetries if details.HasField("retryDetails") else None,
        dead_letter_topic=details.retryDetails.deadLetterTopic or None,
        sub_name=source.subscriptionName or None,
        subscription_position="Earliest" if source.subscriptionPosition == EARLIEST else "Latest",
        parallelism=details.parallelism,
        resources=Resources(cpu=details.resources.cpu, ram=details.resources.ram, disk=details.resources.disk),
        timeout_ms=source.timeoutMs or None,
        cleanup_subscription=source.cleanupSubscription,
        runtime_flags=details.runtimeFlags or None,
    )


def _consumer(spec: records.ConsumerSpec) -> ConsumerSpec:
    return ConsumerSpec(
        schema_type=spec.schemaType or None,
        serde_class_name=spec.serdeClassName or None,
        is_regex_pattern=spec.isRegexPattern,
        schema_properties=dict(spec.schemaProperties),
        consumer_properties=dict(spec.consumerProperties),
        receiver_queue_size=spec.receiverQueueSize.value if spec.HasField("receiverQueueSize") else None,
        pool_messages=spec.poolMessages,
    )


def _producer(spec: records.ProducerSpec) -> ProducerSpec:
    return ProducerSpec(
        max_pending_messages=spec.maxPendingMessages or None,
        max_pending_messages_across_partitions=spec.maxPendingMessagesAcrossPartitions or None,
        use_thread_local_producers=spec.useThreadLocalProducers,
        batch_builder=spec.batchBuilder or None,
        compression_type=CompressionType.Name(spec.compressionType),
    )


def to_json(metadata: FunctionMetaData) -> dict[str, Any]:
    """Return what GET answers: Pulsar's fields in Pulsar's order, without those that have no value.

    `runtimeEnv` and `minPartitions` are our additions and only there when they were chosen.
    """
    details = metadata.functionDetails
    config = from_details(details)
    answer: dict[str, Any] = {
        "runtimeFlags": config.runtime_flags,
        "tenant": config.tenant,
        "namespace": config.namespace,
        "name": config.name,
        "className": config.class_name,
        "inputSpecs": {topic: _consumer_json(spec) for topic, spec in config.input_specs.items()},
        "output": config.output,
        "producerConfig": _producer_json(config.producer or ProducerSpec()),
        "outputSchemaType": config.output_schema_type,
        "outputSerdeClassName": config.output_serde_class_name,
        "logTopic": config.log_topic,
        "processingGuarantees": config.processing_guarantees,
        "retainOrdering": config.retain_ordering,
        "retainKeyOrdering": config.retain_key_ordering,
        "forwardSourceMessageProperty": config.forward_source_message_property or None,
        "userConfig": config.user_config,
        "secrets": config.secrets,
        "runtime": config.runtime,
        "autoAck": config.auto_ack,
        "maxMessageRetries": config.max_message_retries,
        "deadLetterTopic": config.dead_letter_topic,
        "subName": config.sub_name,
        "parallelism": config.parallelism,
        "resources": {"cpu": details.resources.cpu, "ram": details.resources.ram, "disk": details.resources.disk},
        "timeoutMs": config.timeout_ms,
        "cleanupSubscription": config.cleanup_subscription,
        "customRuntimeOptions": details.customRuntimeOptions or None,
        "subscriptionPosition": config.subscription_position,
        "runtimeEnv": config.runtime_env,
        "minPartitions": config.min_partitions,
    }
    return {name: value for name, value in answer.items() if value is not None}


def _consumer_json(spec: ConsumerSpec) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "schemaType": spec.schema_type,
        "serdeClassName": spec.serde_class_name,
        "schemaProperties": dict(spec.schema_properties),
        "consumerProperties": {},
        "receiverQueueSize": spec.receiver_queue_size,
        "poolMessages": spec.pool_messages,
        "regexPattern": spec.is_regex_pattern,
    }
    return {name: value for name, value in answer.items() if value is not None}


def _producer_json(spec: ProducerSpec) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "maxPendingMessages": spec.max_pending_messages,
        "maxPendingMessagesAcrossPartitions": spec.max_pending_messages_across_partitions,
        "useThreadLocalProducers": spec.use_thread_local_producers,
        "batchBuilder": spec.batch_builder or "",
        "compressionType": spec.compression_type,
    }
    return {name: value for name, value in answer.items() if value is not None}
