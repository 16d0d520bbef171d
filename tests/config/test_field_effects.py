"""Each field that Apache Pulsar's configs have works by a test, or is refused at create by name with the remedy.

`FIELDS` has Pulsar's own list of fields and ours; a field without a row fails here, as does a row without its test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from magnetar.config.crypto_config import CryptoConfig
from magnetar.config.function_config import (
    FUNCTION_FIELDS,
    BatchingConfig,
    ConsumerSpec,
    ProducerSpec,
    Resources,
)
from magnetar.config.table import fields_of

from tests.config.test_rules import answer, refusal, registered

TESTS = Path(__file__).parent.parent


class Works(NamedTuple):
    """A field that is taken: the test of its effect, below ``tests``."""

    test: str


class Refused(NamedTuple):
    """A field that is refused: a value that asks for something, and what the refusal says, its name aside."""

    value: Any
    reason: str


Row = Works | Refused
_RULES = "config/test_schema_rules.py::"
_ENDPOINTS = "instance/test_endpoint_settings.py::"
_REST = "worker/test_functions_rest.py::"
_ENTRIES = _ENDPOINTS + "test_entries_of_outputs_become_as_large_as_batching_config_says"
_PUBLISHES = _ENDPOINTS + "test_settings_of_producers_reach_what_the_context_publishes"
_RUNS = _REST + "test_a_function_is_created_runs_and_is_deleted_with_its_subscription"
_PATTERN = "worker/test_inputs_and_secrets.py::test_a_pattern_is_prepared_followed_and_cleaned_up"
_SERDES = "instance/test_pipeline_e2e.py::test_custom_serdes_and_failing_input"
_SCHEMAS = "instance/test_topic_schemas.py::test_dataclasses_with_json_schemas"
_CUSTOM = _RULES + "test_custom_schemas_are_types_or_json_of_a_consumers_config"
_CLASSES = "instance/test_values.py::test_classes_of_the_config_do_what_annotations_do"
_RETRIES = "instance/test_retries.py::test_a_poison_message_is_tried_so_often_and_others_once"
_ENCRYPTED = "instance/test_encrypted_topics.py::"
_BOTH_ENDS = _ENCRYPTED + "test_the_official_client_writes_what_is_read_and_reads_what_is_written"

FUNCTION: dict[str, Row] = {
    "tenant": Works(_RUNS),
    "namespace": Works(_RUNS),
    "name": Works(_RUNS),
    "className": Works(_RUNS),
    "inputs": Works(_RUNS),
    "topicsPattern": Works(_PATTERN),
    "customSerdeInputs": Works("config/test_rules.py::test_an_update_that_only_names_an_input_keeps_its_serde"),
    "customSchemaInputs": Works(_CUSTOM),
    "customSchemaOutputs": Works(_CUSTOM),
    "inputSpecs": Works(_SERDES),
    "inputTypeClassName": Works(_CLASSES),
    "outputTypeClassName": Works(_CLASSES),
    "output": Works(_RUNS),
    "producerConfig": Works(_ENTRIES),
    "outputSchemaType": Works(_SCHEMAS),
    "outputSerdeClassName": Works("instance/test_values.py::test_config_wins_over_annotations"),
    "logTopic": Works("instance/test_pipeline_e2e.py::test_log_topic_gets_what_the_function_says"),
    "processingGuarantees": Works("instance/test_pipeline_e2e.py::test_at_most_once_repeats_nothing"),
    "retainOrdering": Works(_REST + "test_several_inputs_one_of_them_partitioned_in_order"),
    "retainKeyOrdering": Works(_ENDPOINTS + "test_instances_keep_the_order_of_each_key"),
    "batchBuilder": Works(_ENDPOINTS + "test_a_key_based_entry_has_one_key"),
    "forwardSourceMessageProperty": Works("instance/test_pipeline_e2e.py::test_properties_are_forwarded_if_asked_for"),
    "userConfig": Works("instance/test_pipeline_e2e.py::test_context_knows_message_and_instance"),
    "secrets": Works("instance/test_context.py::test_secrets_come_from_where_the_config_says_and_are_hidden"),
    "runtime": Refused("JAVA", "runtime JAVA contradicts py, a Python file: remove runtime"),
    "autoAck": Works("instance/test_pipeline_e2e.py::test_manual_acknowledges_what_the_function_acknowledges"),
    "maxMessageRetries": Works(_RETRIES),
    "deadLetterTopic": Works("instance/test_retries.py::test_a_letter_is_the_message_with_its_origin_and_the_reason"),
    "subName": Works(_REST + "test_a_function_that_keeps_its_subscription_leaves_it"),
    "subscriptionPosition": Works(
        "worker/test_exact_functions.py::test_a_created_function_is_exact_and_begins_again_when_its_cursor_is_reset"
    ),
    "skipToLatest": Works(_ENDPOINTS + "test_skip_to_latest_skips_the_backlog_at_each_start"),
    "parallelism": Works(_REST + "test_an_update_changes_code_and_parallelism"),
    "resources": Works(_REST + "test_memory_of_a_function_is_limited_and_status_says_so"),
    "windowConfig": Refused({"windowLengthCount": 5}, "no support windowing in python: remove windowConfig"),
    "timeoutMs": Works(_RETRIES),
    "jar": Refused("f.jar", "runtime JAVA is not supported: remove jar and runtime, and set py to a Python file"),
    "go": Refused("f", "runtime GO is not supported: remove go and runtime, and set py to a Python file"),
    "functionType": Refused("x", "built-in functions are not supported yet; use py with a Python file"),
    "py": Works(_RUNS),
    "fqfn": Refused("a/b/c", "does not match public/default/f, the name in the request: remove fqfn"),
    "cleanupSubscription": Works(_REST + "test_a_function_that_keeps_its_subscription_leaves_it"),
    "runtimeFlags": Refused("-x", "not supported yet; remove this field"),
    "customRuntimeOptions": Works(
        "config/test_rules.py::test_the_runtime_environment_is_kept_where_pulsars_tools_can_set_it"
    ),
    "maxPendingAsyncRequests": Works("instance/test_async_functions.py::test_calls_run_at_once_up_to_the_limit"),
    "exposePulsarAdminClientEnabled": Works(
        "instance/test_context.py::test_the_context_asks_the_admin_interface_where_that_is_allowed"
    ),
}
CONSUMER: dict[str, Row] = {
    "schemaType": Works(_SCHEMAS),
    "serdeClassName": Works(_SERDES),
    "regexPattern": Works(_PATTERN),
    "schemaProperties": Works(_CUSTOM),
    "consumerProperties": Works(_ENDPOINTS + "test_properties_of_a_consumer_have_their_effect"),
    "receiverQueueSize": Works(_ENDPOINTS + "test_receiver_queue_size_is_that_of_the_topic"),
    "cryptoConfig": Works(_BOTH_ENDS),
    "poolMessages": Refused(True, "Python has no buffer pools; remove this field"),
    "messagePayloadProcessorConfig": Refused({"className": "a.B"}, "Java classes cannot be loaded; remove this field"),
}
PRODUCER: dict[str, Row] = {
    "maxPendingMessages": Works(_PUBLISHES),
    "maxPendingMessagesAcrossPartitions": Works(_PUBLISHES),
    "useThreadLocalProducers": Works(_ENDPOINTS + "test_threads_have_producers_of_their_own_where_that_is_asked_for"),
    "cryptoConfig": Works(_BOTH_ENDS),
    "batchBuilder": Works(_ENDPOINTS + "test_a_key_based_entry_has_one_key"),
    "compressionType": Works(_PUBLISHES),
    "batchingConfig": Works(_ENTRIES),
}
BATCHING: dict[str, Row] = {
    "enabled": Works(_ENTRIES),
    "batchingMaxPublishDelayMs": Works(_ENTRIES),
    "roundRobinRouterBatchingPartitionSwitchFrequency": Refused(
        5, "partitions are switched after each entry; remove this field"
    ),
    "batchingMaxMessages": Works(_ENTRIES),
    "batchingMaxBytes": Works(_ENTRIES),
    "batchBuilder": Works(_PUBLISHES),
}
RESOURCES: dict[str, Row] = {
    "cpu": Works("runtime/test_cpu_groups.py::test_an_instance_gets_its_share_and_leaves_no_group"),
    "ram": Works(_REST + "test_memory_of_a_function_is_limited_and_status_says_so"),
    "disk": Refused(5, "disk limits are not enforced; remove this field"),
}
"""Pulsar's fields, in the order of its classes."""
OURS: dict[str, Row] = {
    "outputSchemaProperties": Works(_CUSTOM),
    "runtimeEnv": Works("config/test_rules.py::test_the_runtime_environment_is_kept_where_pulsars_tools_can_set_it"),
    "sql": Works("spark/test_host_end_to_end.py::test_a_statement_joins_two_topics_and_an_update_changes_it"),
    "minPartitions": Works("spark/test_plans.py::test_every_entry_is_in_one_task_and_slots_go_up"),
    "cron": Works(
        "spark/test_trigger_loop.py::test_cron_begins_runs_over_the_end_of_an_idle_host_and_missed_times_are_one_run"
    ),
    "backlogTrigger": Works("spark/test_trigger_loop.py::test_a_backlog_begins_a_run_and_no_run_follows_from_less"),
    "continuousIntervalMs": Works(
        "spark/test_trigger_loop.py::test_a_run_that_fails_is_shown_and_tried_again_after_a_pause"
    ),
    "runTimeLimitMs": Works("instance/test_run_time_limit.py::test_a_function_that_takes_too_long_ends_with_the_line"),
}
"""Fields of functions that Pulsar has not."""

CRYPTO: dict[str, Row] = {
    "cryptoKeyReaderClassName": Works(_ENCRYPTED + "test_keys_come_from_a_class_of_the_package"),
    "cryptoKeyReaderConfig": Works(_ENCRYPTED + "test_keys_come_from_a_class_of_the_package"),
    "encryptionKeys": Works(_BOTH_ENDS),
    "producerCryptoFailureAction": Works(
        _ENCRYPTED + "test_without_the_public_key_nothing_goes_out_unless_that_is_asked_for"
    ),
    "consumerCryptoFailureAction": Works(_ENCRYPTED + "test_other_actions_go_on"),
}
NESTED = {
    "inputSpecs.in": (CONSUMER, ConsumerSpec),
    "producerConfig": (PRODUCER, ProducerSpec),
    "producerConfig.batchingConfig": (BATCHING, BatchingConfig),
    "resources": (RESOURCES, Resources),
    "inputSpecs.in.cryptoConfig": (CRYPTO, CryptoConfig),
    "producerConfig.cryptoConfig": (CRYPTO, CryptoConfig),
}


def rows() -> Iterator[tuple[str, Row]]:
    """Yield all fields with their paths."""
    yield from (FUNCTION | OURS).items()
    for where, (fields, _) in NESTED.items():
        yield from ((f"{where}.{name}", row) for name, row in fields.items())


def config_with(path: str, value: Any) -> dict[str, Any]:
    """Return the JSON that has a value at a path."""
    first, *others = path.split(".")
    return {first: config_with(".".join(others), value) if others else value}


def refused() -> list[Any]:
    """Return path, value and reason of each refused field, as parameters of a test."""
    found = [(path, row.value, row.reason) for path, row in rows() if isinstance(row, Refused)]
    return [pytest.param(*one, id=f"{one[0]} {'+'.join(one[1]) if isinstance(one[1], dict) else ''}") for one in found]


def test_every_field_has_a_row_and_every_row_a_field() -> None:
    assert {field.name for field in FUNCTION_FIELDS} == FUNCTION.keys() | OURS.keys()
    for fields, config in NESTED.values():
        assert {field.name for field in fields_of(config)} == fields.keys()


@pytest.mark.parametrize("path", [path for path, row in rows() if isinstance(row, Works)])
def test_field_that_works_has_a_test_of_its_effect(path: str) -> None:
    test = dict(rows())[path]
    assert isinstance(test, Works)
    file, _, name = test.test.partition("::")
    assert re.search(rf"^(async )?def {name}\(", (TESTS / file).read_text(), re.MULTILINE), test.test


@pytest.mark.parametrize(("path", "value", "reason"), refused())
def test_field_that_does_not_work_is_refused_by_name_with_the_remedy(path: str, value: Any, reason: str) -> None:
    given = config_with(path, value)
    text = refusal(**({"py": None} | given if path in ("jar", "go") else given))
    assert path.rpartition(".")[2] in text
    assert reason in text


def test_what_asks_for_nothing_is_no_reason_to_refuse() -> None:
    assert answer(registered(runtimeFlags="", inputSpecs={"in": {"poolMessages": False}})) == answer(registered())
