"""Each feature that docs/reference/client-comparison.md says yes to has tests, and these exist and are run."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

TESTS: dict[str, tuple[str, ...]] = {
    "asyncio": ("client/test_producer.py::test_send_returns_rising_ids_of_messages_that_can_be_read",),
    "blocking calls": ("client/test_blocking.py::test_messages_go_there_and_back",),
    "`async for`, `async with`": (
        "client/test_features.py::test_async_for_takes_messages_until_the_consumer_is_closed",
        "client/test_features.py::test_for_takes_messages_until_the_blocking_consumer_is_closed",
    ),
    "batches": (
        "client/test_producer.py::test_a_batch_is_closed_by_the_number_of_its_messages",
        "client/test_producer.py::test_a_batch_is_closed_by_its_bytes",
        "client/test_producer.py::test_a_batch_is_closed_by_its_age",
    ),
    "compression": ("client/test_producer.py::test_messages_keep_all_their_properties_in_every_compression",),
    "access modes of producers": (
        "client/test_producer.py::test_an_exclusive_producer_excludes_others",
        "client/test_producer.py::test_a_producer_waits_for_its_turn_to_be_exclusive",
        "client/test_producer.py::test_a_fenced_producer_fails_for_good",
    ),
    "deduplication by sequence ids": (
        "client/test_producer.py::test_sequence_ids_begin_where_they_are_told_and_must_rise",
    ),
    "routing over partitions": (
        "client/test_partitions.py::test_messages_without_key_go_round_robin",
        "client/test_partitions.py::test_a_key_always_goes_to_its_partition",
        "client/test_partitions.py::test_single_partition_and_custom_routing",
    ),
    "new partitions, for producers": ("client/test_features.py::test_producer_picks_up_new_partitions",),
    "new partitions, for consumers": ("client/test_partitions.py::test_new_partitions_are_consumed_too",),
    "lazy partitioned producers": (
        "client/test_features.py::test_lazy_producer_creates_partitions_with_their_first_message",
    ),
    "chunks, sent": (
        "client/test_chunks.py::test_large_message_goes_in_chunks",
        "client/test_chunks.py::test_chunks_of_the_official_client_are_put_together_by_ours_and_the_other_way_round",
    ),
    "chunks, on Shared subscriptions": (
        "client/test_chunks.py::test_chunks_of_a_message_go_to_one_consumer_of_a_shared_subscription",
    ),
    "limit of pending messages": ("client/test_producer.py::test_a_full_queue_is_refused_or_waited_for",),
    "memory limit of a client": (
        "client/test_features.py::test_memory_limit_is_shared_by_the_producers_of_a_client",
        "client/test_features.py::test_blocking_producers_stay_within_the_memory_limit",
    ),
    "Exclusive, Failover, Shared": (
        "client/test_consumer.py::test_a_second_exclusive_consumer_is_refused",
        "client/test_consumer.py::test_one_failover_consumer_is_active_and_another_takes_over",
        "client/test_consumer.py::test_shared_consumers_share",
    ),
    "TLS": (
        "client/test_security.py::test_messages_go_through_tls",
        "client/test_secure_cluster.py::test_the_certificate_must_be_trusted_and_name_the_host",
    ),
    "tokens, passwords, client certificates": (
        "client/test_security.py::test_connect_shows_the_credentials",
        "client/test_security.py::test_a_broker_may_ask_for_a_certificate",
        "client/test_secure_cluster.py::test_messages_go_round_with_each_method",
    ),
    "OAuth2 client credentials": (
        "security/test_credentials.py::test_oauth2_keeps_a_token_until_shortly_before_it_expires",
    ),
    "tokens renewed while connected": (
        "client/test_security.py::test_a_challenge_is_answered_with_the_token_as_it_is_now",
        "client/test_secure_cluster.py::test_a_token_is_renewed_while_connected",
    ),
    "several topics": ("client/test_partitions.py::test_several_topics_are_merged",),
    "non-persistent topics": ("client/test_nonpersistent.py::test_messages_go_to_who_is_there",),
    "regex subscriptions": (
        "client/test_patterns.py::test_a_watch_tells_of_topics_that_come_and_go",
        "client/test_patterns.py::test_topics_are_asked_for_where_nobody_tells_of_them",
    ),
    "readers": ("client/test_reader.py::test_a_reader_begins_where_it_is_told",),
    "whole entries, undecoded": ("client/test_consumer.py::test_whole_entries_are_received_and_acknowledged",),
    "acknowledgement inside batches": (
        "client/test_consumer.py::test_messages_acknowledged_inside_a_batch_do_not_come_again",
    ),
    "acknowledgements that are confirmed": (
        "client/test_consumer.py::test_acknowledgements_with_receipts_are_confirmed",
    ),
    "negative acknowledgement": (
        "client/test_consumer.py::test_a_negative_acknowledgement_brings_the_message_again_after_its_delay",
    ),
    "ack timeout": ("client/test_letters.py::test_message_that_is_not_acknowledged_in_time_comes_again",),
    "dead letter topic": (
        "client/test_letters.py::test_message_becomes_a_dead_letter_when_it_is_refused_once_more_than_allowed",
        "client/test_letters.py::test_official_client_sends_dead_letters_that_ours_reads",
    ),
    "retry letter topic": (
        "client/test_letters.py::test_message_waits_in_the_retry_topic_until_it_is_a_dead_letter",
        "client/test_letters.py::test_blocking_consumer_reconsumes_later",
    ),
    "listeners": (
        "client/test_features.py::test_listener_gets_messages_one_after_the_other",
        "client/test_features.py::test_blocking_listener_has_a_thread_of_its_own_and_may_block",
    ),
    "pausing a listener": (
        "client/test_features.py::test_listener_gets_messages_one_after_the_other",
        "client/test_features.py::test_blocking_listener_has_a_thread_of_its_own_and_may_block",
    ),
    "interceptors of producers": (
        "client/test_features.py::test_producer_interceptor_changes_messages_and_hears_of_results",
    ),
    "interceptors of consumers": ("client/test_features.py::test_consumer_interceptor_sees_what_becomes_of_messages",),
    "table view": (
        "client/test_features.py::test_table_view_has_the_last_value_of_each_key",
        "client/test_features.py::test_blocking_table_view_calls_listeners_on_their_thread",
    ),
    "schemas of text and bytes": (
        "client/test_schemas.py::test_values_go_there_and_back",
        "client/test_schemas.py::test_blocking_client_sends_and_receives_values",
        "client/test_schemas.py::test_listener_reader_and_table_view_have_values",
    ),
    "schemas of numbers, dates and times": (
        "client/test_schemas.py::test_every_single_value_has_a_type_of_its_own_on_the_broker",
    ),
    "JSON and Avro schemas": (
        "client/test_schemas.py::test_values_go_there_and_back",
        "client/test_schemas.py::test_official_client_reads_ours_and_the_other_way_round",
        "client/test_schemas.py::test_incompatible_schema_is_refused_by_the_broker",
    ),
    "Avro by the writer's schema": (
        "client/test_schemas.py::test_consumer_reads_what_older_and_newer_producers_wrote",
    ),
    "Protobuf schemas": (
        "client/test_schemas.py::test_values_go_there_and_back",
        "client/test_schemas.py::test_official_client_reads_ours_and_the_other_way_round",
    ),
    "key and value schemas": (
        "client/test_schemas.py::test_values_go_there_and_back",
        "client/test_schemas.py::test_partitions_share_a_schema",
    ),
    "AUTO_CONSUME": (
        "client/test_schemas.py::test_consumer_of_any_schema_decodes_by_that_of_each_message",
        "client/test_schemas.py::test_consumer_of_any_schema_decodes_keys_too",
    ),
    "AUTO_PRODUCE_BYTES": ("client/test_schemas.py::test_producer_of_bytes_checks_them_by_the_topics_schema",),
    "statistics": ("client/test_features.py::test_statistics_count_what_producers_and_consumers_do",),
    "subscription properties": (
        "broker/test_subscription_flags.py::test_subscription_keeps_properties_and_that_it_is_replicated",
    ),
    "encryption": (
        "client/test_encryption.py::test_what_is_sent_encrypted_is_received",
        "client/test_encryption.py::test_the_official_client_reads_ours",
        "client/test_encryption.py::test_ours_reads_the_official_client",
        "client/test_encryption.py::test_what_cannot_be_decrypted_comes_again",
    ),
    "delayed delivery": ("client/test_delayed_sends.py::test_a_delayed_message_comes_at_its_time",),
    "Key_Shared, sticky ranges": (
        "client/test_consumer.py::test_key_shared_keeps_a_key_with_one_consumer",
        "client/test_key_shared.py::test_sticky_ranges_are_exclusive",
    ),
    "batches of one key": (
        "client/test_key_shared.py::test_batches_of_one_key_keep_each_key_with_one_consumer",
        "client/test_key_shared.py::test_sequence_ids_of_batches_of_one_key_follow_each_other",
    ),
    "replicated subscription state": (
        "broker/test_subscription_flags.py::test_subscription_keeps_properties_and_that_it_is_replicated",
    ),
}
"""Feature -> the tests that run it, below tests/."""


def rows() -> dict[str, str]:
    """What the table says of each feature, in our column."""
    text = (ROOT / "docs/reference/client-comparison.md").read_text().partition("| feature | ours |")[2]
    cells = [re.split(r"\s*\|\s*", line.strip("| ")) for line in text.splitlines() if line.startswith("| ")]
    return {line[0]: line[1] for line in cells if len(line) == 4 and not line[0].startswith("---")}


def test_every_feature_that_is_there_has_its_tests() -> None:
    found = {feature for feature, ours in rows().items() if ours.startswith("yes")}
    assert found == set(TESTS)
    assert len(found) > 30


@pytest.mark.parametrize("feature", TESTS)
def test_tests_of_a_feature_exist(feature: str) -> None:
    for test in TESTS[feature]:
        file, _, name = test.partition("::")
        module = ast.parse((ROOT / "tests" / file).read_text())
        functions = [node for node in module.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        [function] = [node for node in functions if node.name == name]
        assert not any("skip" in ast.unparse(mark) or "xfail" in ast.unparse(mark) for mark in function.decorator_list)
