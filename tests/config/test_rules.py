"""FunctionConfig: what is refused, in whose words, and what survives the way into a record and back."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.config.conversion import from_details, merge, read_function_config, to_details, to_json
from magnetar.config.function_config import FIELDS_BY_NAME, FunctionConfig
from magnetar.config.rules import check, with_defaults
from magnetar.errors import InvalidConfig
from magnetar.wire.functions_pb2 import FAILOVER, SHARED, FunctionMetaData

GOLDEN = Path(__file__).parent.parent / "golden" / "rest-functions" / "functions.jsonl"

MINIMAL = {"className": "f.F", "inputs": ["in"], "output": "out", "py": "f.py"}


def registered(**fields: object) -> FunctionConfig:
    """Return the checked config of a JSON object, as registration makes it."""
    sent = read_function_config({**MINIMAL, **fields})
    config = with_defaults(replace(sent, tenant="public", namespace="default", name="f"))
    check(config)
    return config


def refusal(**fields: object) -> str:
    with pytest.raises(InvalidConfig) as caught:
        registered(**fields)
    text = str(caught.value)
    assert "\n" not in text
    return text


def answer(config: FunctionConfig) -> dict[str, object]:
    return to_json(FunctionMetaData(functionDetails=to_details(config)))


def test_a_minimal_function_is_described_as_pulsar_describes_it() -> None:
    assert json.loads(json.dumps(answer(registered()))) == {
        "tenant": "public",
        "namespace": "default",
        "name": "f",
        "className": "f.F",
        "inputSpecs": {
            "in": {"schemaProperties": {}, "consumerProperties": {}, "poolMessages": False, "regexPattern": False}
        },
        "output": "out",
        "producerConfig": {"useThreadLocalProducers": False, "batchBuilder": "", "compressionType": "LZ4"},
        "processingGuarantees": "ATLEAST_ONCE",
        "retainOrdering": False,
        "retainKeyOrdering": False,
        "forwardSourceMessageProperty": True,
        "userConfig": {},
        "runtime": "PYTHON",
        "autoAck": True,
        "parallelism": 1,
        "resources": {"cpu": 1.0, "ram": 1073741824, "disk": 10737418240},
        "cleanupSubscription": True,
        "subscriptionPosition": "Latest",
    }


def test_numbers_of_the_user_config_come_back_as_they_were_given() -> None:
    config = {"n": 9007199254740993, "neg": -1, "e": 1000.0, "o": {"l": [1, None, "x"]}}
    assert answer(registered(userConfig=config))["userConfig"] == config


def test_an_unknown_field_is_refused_with_the_nearest_known_name() -> None:
    assert refusal(paralelism=2) == "unknown field paralelism: did you mean parallelism?"


def test_an_unknown_field_inside_of_input_specs_is_refused() -> None:
    text = refusal(inputSpecs={"in": {"recieverQueueSize": 3}})
    assert text == "inputSpecs[in]: unknown field recieverQueueSize: did you mean receiverQueueSize?"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"parallelism": "x"}, 'parallelism must be a whole number, not "x"'),
        ({"parallelism": True}, "parallelism must be a whole number, not true"),
        ({"parallelism": 10_000}, "Function parallelism 10000 exceeds the limit of 1000 instances"),
        ({"autoAck": "yes"}, 'autoAck must be true or false, not "yes"'),
        ({"inputs": "in"}, 'inputs must be a list of strings, not "in"'),
        ({"inputs": [1]}, "inputs must be a list of strings, not [1]"),
        ({"userConfig": [1]}, "userConfig must be a JSON object, not [1]"),
        ({"customSerdeInputs": {"in": 1}}, "customSerdeInputs: the value of 'in' must be a string, not 1"),
        ({"resources": {"cpu": "a"}}, 'resources.cpu must be a number, not "a"'),
        ({"timeoutMs": 1 << 70}, "timeoutMs 1180591620717411303424 does not fit into 64 bits"),
        (
            {"processingGuarantees": "SOMETIMES"},
            "invalid processingGuarantees 'SOMETIMES': expected one of ATLEAST_ONCE, ATMOST_ONCE, EFFECTIVELY_ONCE,"
            " MANUAL",
        ),
        ({"runtimeEnv": "swarm"}, "invalid runtimeEnv 'swarm': expected one of process, thread, spark"),
        ({"customRuntimeOptions": "{"}, 'customRuntimeOptions must be a JSON object, not "{"'),
        ({"customRuntimeOptions": "[]"}, "customRuntimeOptions must be a JSON object, not []"),
        (
            {"customRuntimeOptions": '{"jobNamespace": "x"}'},
            "customRuntimeOptions: unknown field 'jobNamespace': expected one of runtimeEnv, minPartitions,"
            " maxPendingAsyncRequests, exposePulsarAdminClientEnabled, runTimeLimitMs, cron, backlogTrigger,"
            " continuousIntervalMs, sql",
        ),
        ({"fqfn": "a/b/c"}, "fqfn a/b/c does not match public/default/f, the name in the request: remove fqfn"),
        (
            {"inputs": ["in", "persistent://public/default/in"]},
            "Input topics in and persistent://public/default/in are the same topic: remove one of them",
        ),
        (
            {"output": "persistent://public/default/in"},
            "Output topic persistent://public/default/in is also being used as an input topic"
            " (topics must be one or the other)",
        ),
        (
            {"deadLetterTopic": "persistent://public/default/in", "maxMessageRetries": 1},
            "DeadLetter topic persistent://public/default/in is also being used as an input topic"
            " (topics must be one or the other)",
        ),
    ],
)
def test_a_bad_value_is_refused_in_one_line(fields: dict[str, object], reason: str) -> None:
    assert refusal(**fields) == reason


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"inputSpecs": {"in": {"poolMessages": True}}}, "inputSpecs[in].poolMessages"),
        ({"timeoutMs": 100, "runtimeEnv": "spark"}, "timeoutMs"),
        ({"timeoutMs": 100, "autoAck": False}, "timeoutMs"),
        ({"maxMessageRetries": 0, "runtimeEnv": "spark"}, "maxMessageRetries"),
        ({"maxMessageRetries": 1, "processingGuarantees": "ATMOST_ONCE"}, "maxMessageRetries"),
        ({"runtimeFlags": "-x"}, "runtimeFlags"),
        ({"resources": {"ram": 5}}, "resources.ram"),
        ({"resources": {"cpu": 2.0}, "runtimeEnv": "thread"}, "resources.cpu"),
        ({"resources": {"cpu": 0.001}}, "resources.cpu"),
        ({"resources": {"cpu": 1e400}}, "resources.cpu"),
        ({"resources": {"ram": 2 << 30}, "runtimeEnv": "thread"}, "resources.ram"),
        ({"maxPendingAsyncRequests": 5, "runtimeEnv": "spark"}, "maxPendingAsyncRequests"),
    ],
)
def test_what_is_not_supported_is_refused_by_name_with_the_remedy(fields: dict[str, object], name: str) -> None:
    text = refusal(**fields)
    assert text.startswith((f"{name}: ", f"{name} "))
    assert "remove " in text or "set " in text


@pytest.mark.parametrize(
    "fields",
    [
        {"outputSchemaType": "", "forwardSourceMessageProperty": True, "subscriptionPosition": "Latest"},
        {"skipToLatest": False, "exposePulsarAdminClientEnabled": False, "retainKeyOrdering": False},
        {"secrets": {}, "windowConfig": None, "maxPendingAsyncRequests": 1000, "batchBuilder": "", "timeoutMs": None},
    ],
)
def test_the_neutral_values_that_pulsars_tools_always_send_are_accepted(fields: dict[str, object]) -> None:
    assert answer(registered(**fields)) == answer(registered())


@pytest.mark.parametrize("number", [0, -1, 20_001])
def test_the_number_of_async_calls_has_limits(number: int) -> None:
    assert refusal(maxPendingAsyncRequests=number).startswith(
        f"invalid maxPendingAsyncRequests {number}: expected 1 to"
    )


def test_the_number_of_async_calls_is_kept_among_the_runtime_options_and_its_default_is_not() -> None:
    details = to_details(registered(maxPendingAsyncRequests=50))
    assert json.loads(details.customRuntimeOptions) == {"maxPendingAsyncRequests": 50}
    assert answer(registered(maxPendingAsyncRequests=50))["maxPendingAsyncRequests"] == 50
    assert to_details(registered(maxPendingAsyncRequests=1000)) == to_details(registered())
    assert to_details(registered(minPartitions=1000, runtimeEnv="spark")).customRuntimeOptions


def test_ordering_makes_the_subscription_a_failover_one() -> None:
    assert to_details(registered(retainOrdering=True)).source.subscriptionType == FAILOVER
    assert to_details(registered()).source.subscriptionType == SHARED


def test_the_runtime_environment_is_kept_where_pulsars_tools_can_set_it() -> None:
    by_field = registered(runtimeEnv="thread")
    by_options = registered(customRuntimeOptions='{"runtimeEnv": "thread"}')
    assert to_details(by_field) == to_details(by_options)
    assert answer(by_field)["runtimeEnv"] == "thread"
    assert "runtimeEnv" not in answer(registered())


def test_a_path_of_another_system_gives_the_files_name() -> None:
    assert read_function_config({**MINIMAL, "py": "C:\\code\\count.py"}).file_name == "count.py"
    assert read_function_config({**MINIMAL, "py": "/code/count.py"}).file_name == "count.py"


# -- the recorded answers of a real Apache Pulsar -------------------------------------------------------------------

EXCEPTIONS = {
    "create: Python with retries": "Python functions have retries here",
    "create: bad class": "classes are looked for in the package, by the worker",
    "create: class that is no function": "Java's class check",
    "create: bad guarantees": "Pulsar accepts an unknown value and ignores it",
    "create: lower case guarantees": "Pulsar accepts an unknown value and ignores it",
    "create: unknown serde class": "Java's class check",
    "create: unknown output serde": "Java's class check",
    "create: unknown schema type": "Java's class check",
    "create: no class": "the text for Python differs, and is compared with a Python line",
    "create: parallelism text": "an HTML page of Java's JSON reader",
    "create: window length 0": "windows are refused for Python before their length is looked at",
    "create: window slide negative": "windows are refused for Python before their slide is looked at",
    "create: window with autoAck": "an exception text of Java's",
    "create: window with EFFECTIVELY_ONCE": "an exception text of Java's",
    "create: Python with EFFECTIVELY_ONCE": "Pulsar's Python instances cannot do it, ours do",
    "create: window lag without time": "an exception text of Java's",
}
SERVER_STEPS = (
    "parts", "config", "package", "jar", "tenant", "namespace", "url", "builtin", "Go", "body", "again", "Java", "JSON",
    "every field", "pattern", "short", "two inputs", "word count", "function name",
)  # fmt: skip


def golden_creations() -> list[tuple[str, dict[str, object], str]]:
    found = []
    for line in GOLDEN.read_text().splitlines():
        step = json.loads(line)
        if step["method"] != "POST" or not step["step"].startswith("create:") or step["status"] != 400:
            continue
        if step["step"] in EXCEPTIONS or any(word in step["step"] for word in SERVER_STEPS):
            continue
        config = next(part["content"] for part in step["request"]["parts"] if part["name"] == "functionConfig")
        config = {name: value for name, value in config.items() if name != "jar"} | {"py": "f.py"}
        found.append((step["step"], config, step["response"]["reason"]))
    return found


@pytest.mark.parametrize(("step", "config", "reason"), golden_creations(), ids=lambda value: str(value)[:40])
def test_a_refusal_begins_with_the_words_of_apache_pulsar(step: str, config: dict[str, object], reason: str) -> None:
    sent = with_defaults(replace(read_function_config(config), tenant="golden", namespace="fn", name="f"))
    with pytest.raises(InvalidConfig) as caught:
        check(sent)
    assert str(caught.value).startswith(reason)


def test_enough_recorded_refusals_are_compared() -> None:
    assert len(golden_creations()) >= 20


# -- updates -------------------------------------------------------------------------------------------------------


def updated(**fields: object) -> FunctionConfig:
    before = from_details(to_details(registered(subName="s", userConfig={"a": 1})))
    config = merge(before, read_function_config(fields))
    check(config)
    return config


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"inputs": ["other"]}, "Input Topics cannot be altered"),
        ({"processingGuarantees": "ATMOST_ONCE"}, "Processing Guarantees cannot be altered"),
        ({"retainOrdering": True}, "Retain Ordering cannot be altered"),
        ({"retainKeyOrdering": True}, "Retain Key Ordering cannot be altered"),
        ({"autoAck": False}, "AutoAck cannot be altered"),
        ({"subName": "t"}, "Subscription Name cannot be altered"),
        ({"runtime": "JAVA"}, "Runtime cannot be altered"),
        ({"outputSerdeClassName": "x.Y"}, "Output Serde mismatch"),
        ({"outputSchemaType": "STRING"}, "Output Schema mismatch"),
        ({"inputSpecs": {"in": {"regexPattern": True}}}, "isRegexPattern for input topic in cannot be altered"),
        ({"parallelism": 0}, "Function parallelism must be a positive number"),
    ],
)
def test_an_update_cannot_alter_what_is_fixed(fields: dict[str, object], reason: str) -> None:
    with pytest.raises(InvalidConfig, match=f"^{reason}$"):
        updated(**fields)


def test_an_update_that_asks_for_another_position_is_refused() -> None:
    reason = r"subscriptionPosition cannot be altered, .* functions reset-cursor"
    with pytest.raises(InvalidConfig, match=reason):
        updated(subscriptionPosition="Earliest")
    assert updated(subscriptionPosition="Latest") == updated()
    earliest = registered(subscriptionPosition="Earliest")
    for sent in ("Latest", "Earliest"):  # Pulsar's tools send Latest with every update
        assert merge(earliest, read_function_config({"subscriptionPosition": sent})) == earliest


def test_an_empty_topic_in_an_update_takes_it_away() -> None:
    before = from_details(to_details(registered(logTopic="log")))
    assert (before.log_topic, before.output) == ("log", "out")
    for fields in ({"logTopic": ""}, {"output": ""}, {"output": "", "logTopic": ""}):
        config = merge(before, read_function_config(fields))
        assert config.log_topic == (None if "logTopic" in fields else "log")
        assert config.output == (None if "output" in fields else "out")
        assert from_details(to_details(config)) == config
        check(config)
    assert merge(before, read_function_config({"logTopic": None})) == before
    assert registered(logTopic="").log_topic is None


@pytest.mark.parametrize("field", ["tenant", "namespace", "name"])
@pytest.mark.parametrize(
    ("text", "is_fine"), [("x" * 128, True), ("x" * 129, False), ("é" * 64, True), ("é" * 65, False)]
)
def test_names_are_bounded_in_bytes(field: str, text: str, is_fine: bool) -> None:
    config = replace(registered(), **{field: text})  # type: ignore[arg-type]
    if is_fine:
        check(config)
    else:
        with pytest.raises(InvalidConfig, match=r"of \d+ bytes exceeds the limit of 128 bytes$"):
            check(config)


@pytest.mark.parametrize(
    "fields",
    [
        {"subName": "pulsar.dedup"},
        {"subName": "__compaction"},
        {"subName": "a\x1bb"},
        {"subName": "\ud800"},
        {"subName": "é" * 513},
        {"output": "a\x00"},
        {"output": "."},
        {"inputs": ["public/default/.."]},
        {"logTopic": "a\nb"},
        {"runtime": "JAVA"},
        {"runtime": "GO"},
    ],
)
def test_a_name_that_no_broker_takes_is_refused(fields: dict[str, object]) -> None:
    assert refusal(**fields)


def test_an_update_changes_what_is_sent_and_keeps_the_rest() -> None:
    config = updated(parallelism=3, output="elsewhere")
    assert (config.parallelism, config.output, config.sub_name, config.user_config) == (3, "elsewhere", "s", {"a": 1})


def test_an_update_that_only_names_an_input_keeps_its_serde() -> None:
    before = from_details(to_details(registered(customSerdeInputs={"in": "f.Serde"})))
    assert merge(before, read_function_config({"inputs": ["in"]})) == before


def test_an_empty_update_changes_nothing() -> None:
    before = from_details(to_details(registered()))
    assert merge(before, read_function_config({})) == before


# -- properties -----------------------------------------------------------------------------------------------------

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(sorted(FIELDS_BY_NAME)) | st.text(max_size=8), json_values, max_size=6))
def test_any_json_object_is_read_or_refused_in_one_line(fields: dict[str, object]) -> None:
    try:
        sent = read_function_config({**MINIMAL, **fields})
        check(with_defaults(replace(sent, tenant="t", namespace="n", name="f")))
    except InvalidConfig as exc:
        refused = str(exc)
    else:
        return
    assert refused


@given(
    parallelism=st.integers(1, 1000),
    topics=st.sets(st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True), min_size=1, max_size=4),
    queue=st.none() | st.integers(0, 1 << 30),
    user=st.dictionaries(st.text(max_size=5), json_values, max_size=3),
    flags=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_a_config_survives_its_record(
    parallelism: int, topics: set[str], queue: int | None, user: dict[str, object], flags: tuple[bool, bool, bool]
) -> None:
    spec = {} if queue is None else {"receiverQueueSize": queue}
    config = registered(
        inputs=None, output="the_output", inputSpecs=dict.fromkeys(topics, spec), parallelism=parallelism,
        userConfig=user, retainOrdering=flags[0], cleanupSubscription=flags[1], forwardSourceMessageProperty=flags[2],
    )  # fmt: skip
    again = from_details(to_details(config))
    assert again == config
    assert math.isclose(1.0, again.resources.cpu if again.resources and again.resources.cpu else 0)


@pytest.mark.parametrize("limit_ms", [0, 99, -1, 86_400_001])
def test_a_run_time_limit_is_between_bounds(limit_ms: int) -> None:
    assert refusal(runTimeLimitMs=limit_ms).startswith(f"invalid runTimeLimitMs {limit_ms}: expected 100 to 86400000")


@pytest.mark.parametrize("runtime", ["thread", "spark"])
def test_a_run_time_limit_is_for_processes(runtime: str) -> None:
    text = refusal(runTimeLimitMs=1000, runtimeEnv=runtime)
    assert text.startswith(f"runTimeLimitMs is only supported with runtimeEnv process, not {runtime}: remove ")
