"""What a Spark function may ask for."""

from __future__ import annotations

import pytest
from magnetar.config.conversion import from_details, merge, read_function_config, runtime_options, to_details, to_json
from magnetar.config.function_config import FIELDS_BY_NAME
from magnetar.config.rules import check, with_defaults
from magnetar.errors import InvalidConfig
from magnetar.wire.functions_pb2 import FAILOVER, FunctionMetaData

from tests.config.test_rules import MINIMAL, refusal, registered


def test_a_spark_function_keeps_its_options_and_reads_by_a_failover_subscription() -> None:
    details = to_details(registered(runtimeEnv="spark", minPartitions=8))
    assert runtime_options(details.customRuntimeOptions) == {"runtime_env": "spark", "min_partitions": 8}
    assert details.source.subscriptionType == FAILOVER
    answer = to_json(FunctionMetaData(functionDetails=details))
    assert (answer["runtimeEnv"], answer["minPartitions"]) == ("spark", 8)
    assert to_details(from_details(details)) == details
    by_options = registered(customRuntimeOptions='{"runtimeEnv": "spark", "minPartitions": 8}')
    assert to_details(by_options) == details


@pytest.mark.parametrize("guarantee", ["ATLEAST_ONCE", "EFFECTIVELY_ONCE"])
def test_both_guarantees_that_hold_are_accepted(guarantee: str) -> None:
    check(registered(runtimeEnv="spark", processingGuarantees=guarantee, retainOrdering=True))


@pytest.mark.parametrize(
    ("fields", "start", "remedy"),
    [
        ({"parallelism": 2}, "parallelism 2 would run 2 Spark drivers", "minPartitions"),
        ({"minPartitions": 0}, "invalid minPartitions 0: expected 1 to 100000", ""),
        (
            {"minPartitions": 4, "retainOrdering": True},
            "minPartitions is not supported with retainOrdering",
            "remove one",
        ),
        ({"cron": "* * * *"}, "invalid cron '* * * *': expected", "minute hour day month weekday"),
        ({"backlogTrigger": -1}, "invalid backlogTrigger -1: expected 1 to", "or 0 for none"),
        ({"continuousIntervalMs": 999}, "invalid continuousIntervalMs 999: expected 1000 to", "or 0 for none"),
        ({"cron": "0 * * * *", "continuousIntervalMs": 1000}, "continuousIntervalMs excludes cron", "clear one"),
        ({"processingGuarantees": "ATMOST_ONCE"}, "processingGuarantees ATMOST_ONCE", "remove"),
        ({"processingGuarantees": "MANUAL"}, "processingGuarantees MANUAL", "remove"),
        ({"autoAck": False}, "autoAck ", "remove"),
        ({"logTopic": "log"}, "logTopic ", "functions logs"),
        ({"inputSpecs": {"in": {"receiverQueueSize": 5}}}, "inputSpecs[in].receiverQueueSize: ", "remove"),
        ({"inputs": [], "topicsPattern": "in-.*"}, "input in-.* is a pattern", "list the topics in inputs"),
        ({"inputSpecs": {"i.*": {"regexPattern": True}}}, "input i.* is a pattern", "list the topics in inputs"),
        ({"output": "non-persistent://public/default/out"}, "output topic non-persistent://", "persistent topic"),
    ],
)
def test_what_makes_no_sense_for_runs_is_refused_with_the_remedy(
    fields: dict[str, object], start: str, remedy: str
) -> None:
    text = refusal(runtimeEnv="spark", **fields)
    assert text.startswith(start)
    assert remedy in text


def test_min_partitions_are_for_spark_alone() -> None:
    assert refusal(minPartitions=4).startswith("minPartitions is only supported with runtimeEnv spark")


@pytest.mark.parametrize("runtime", [None, "process", "thread"])
@pytest.mark.parametrize("fields", [{"cron": "* * * * *"}, {"backlogTrigger": 4}, {"continuousIntervalMs": 5000}])
def test_triggers_are_for_spark_alone(runtime: str | None, fields: dict[str, object]) -> None:
    [name] = fields
    assert refusal(runtimeEnv=runtime, **fields).startswith(f"{name} is only supported with runtimeEnv spark")


def test_an_update_changes_one_trigger_into_another_by_clearing_it() -> None:
    existing = registered(runtimeEnv="spark", cron="0 * * * *")
    with pytest.raises(InvalidConfig, match="backlogTrigger excludes cron"):
        check(merge(existing, read_function_config({**MINIMAL, "backlogTrigger": 4})))
    changed = merge(existing, read_function_config({**MINIMAL, "backlogTrigger": 4, "cron": ""}))
    check(changed)
    options = runtime_options(to_details(changed).customRuntimeOptions)
    assert options == {"runtime_env": "spark", "backlog_trigger": 4}
    answer = to_json(FunctionMetaData(functionDetails=to_details(changed)))
    assert (answer.get("cron"), answer["backlogTrigger"]) == (None, 4)


@pytest.mark.parametrize(
    ("text", "ms"), [("10s", 10_000), ("500ms", 500), ("5m", 300_000), ("2h", 7_200_000), ("1d", 86_400_000), ("7", 7)]
)
def test_an_interval_takes_units(text: str, ms: int) -> None:
    assert FIELDS_BY_NAME["continuousIntervalMs"].kind.parse(text) == ms


@pytest.mark.parametrize("text", ["", "s", "10x", "1.5s", "-1s", "10ss", "1e3"])
def test_what_is_no_interval_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration such as 500ms, 10s"):
        FIELDS_BY_NAME["continuousIntervalMs"].kind.parse(text)


def test_a_function_does_not_become_a_spark_function_by_an_update() -> None:
    existing = registered()
    sent = read_function_config({**MINIMAL, "runtimeEnv": "spark"})
    with pytest.raises(InvalidConfig, match="runtimeEnv process cannot be altered to spark"):
        merge(existing, sent)
    spark = with_defaults(registered(runtimeEnv="spark"))
    assert merge(spark, read_function_config({**MINIMAL, "minPartitions": 5})).min_partitions == 5
    with pytest.raises(InvalidConfig, match="runtimeEnv spark cannot be altered to thread"):
        merge(spark, read_function_config({**MINIMAL, "runtimeEnv": "thread"}))
