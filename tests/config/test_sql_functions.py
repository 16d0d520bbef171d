"""Functions that are a statement: what is refused without Spark, the names of views, and what an update may change."""

from __future__ import annotations

import json

import pytest
from magnetar.config.conversion import from_details, merge, read_function_config, to_details
from magnetar.config.function_config import FunctionConfig
from magnetar.config.rules import check
from magnetar.config.sql_statement import check_statement, view_names
from magnetar.errors import InvalidConfig

from tests.config.test_rules import answer, refusal, registered

TEXT = "SELECT a.value FROM a JOIN b ON a.__key = b.__key"
NO_CODE = {"py": None, "className": None, "inputs": ["a", "b"], "sql": TEXT}


def test_a_statement_stands_in_the_place_of_code_and_survives_the_record() -> None:
    config = registered(**NO_CODE)
    assert (config.class_name, config.runtime, config.runtime_env) == ("sql", "PYTHON", "spark")
    details = to_details(config)
    assert to_details(from_details(details)) == details
    shown = answer(config)
    assert (shown["sql"], shown["runtimeEnv"]) == (TEXT, "spark")
    options = json.dumps({"runtimeEnv": "spark", "sql": TEXT})
    assert to_details(registered(**NO_CODE | {"sql": None, "customRuntimeOptions": options})) == details
    check(merge(config, read_function_config(shown)))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the statement is empty"),
        (" -- SELECT 1\n/* /* */ SELECT */ ;", "the statement is empty"),
        ("INSERT INTO a SELECT 1", "starts with SELECT, WITH, FROM, VALUES or TABLE, not 'INSERT'"),
        ("drop table a", "not 'drop'"),
        ("SELECT ';';\nSELECT 2", "a second statement starts at line 2, column 1"),
        ("SELECT 1) AS x; DROP (a", "unmatched ) at line 1, column 9"),
        ("SELECT (1", "unclosed ( at line 1, column 8"),
        ("SELECT 'it\\'s", "unclosed ' at line 1, column 8"),
        ("SELECT 1 /* more", "unclosed comment at line 1, column 10"),
        ("SELECT '" + 65_536 * "x" + "'", "65545 characters exceed the limit of 65536"),
    ],
)
def test_what_is_no_single_query_is_refused_with_its_place(text: str, reason: str) -> None:
    said = refusal(**NO_CODE | {"sql": text})
    assert said.startswith("sql: ")
    assert reason in said


@pytest.mark.parametrize(
    "text",
    [
        "(SELECT 1) UNION ALL (SELECT 2)", "with x as (select 1) select * from x", "SELECT r'\\', `a;b` FROM a -- ;",
        "SELECT 'DROP; TABLE', \"--\", 'it''s' FROM a", "/* INSERT */ FROM a |> WHERE value IS NOT NULL",
    ],
)  # fmt: skip
def test_a_query_is_taken_without_the_semicolon_at_its_end(text: str) -> None:
    assert check_statement(text) == text
    assert check_statement(f"{text}\n; -- it") == f"{text}\n"


def test_views_are_called_like_topics_and_in_full_where_that_is_one_name() -> None:
    assert view_names(["orders", "persistent://a/b/new.orders-2"]) == {
        "orders": "orders", "persistent://a/b/new.orders-2": "new_orders_2",
    }  # fmt: skip
    assert set(view_names(["orders", "a/b/Orders"]).values()) == {"public_default_orders", "a_b_Orders"}
    said = refusal(**NO_CODE | {"inputs": ["new-orders", "new.orders"]})
    assert said.startswith("inputs new-orders and new.orders would have the same view name public_default_new_orders")


@pytest.mark.parametrize(
    ("fields", "start"),
    [
        ({"py": "f.py"}, "py and sql are mutually exclusive"),
        ({"className": "f.F"}, "className f.F and sql are mutually exclusive"),
        ({"runtimeEnv": "process"}, "sql requires runtimeEnv spark, not process: remove runtimeEnv"),
        ({"runtimeEnv": "thread"}, "sql requires runtimeEnv spark, not thread: remove runtimeEnv"),
        ({"output": None}, "sql requires an output topic"),
        ({"userConfig": {"a": 1}}, "userConfig is not supported with sql"),
        ({"customSerdeInputs": {"a": "x.S"}}, "inputSpecs[a].serdeClassName is not supported with sql"),
    ],
)
def test_what_is_for_code_or_other_runtimes_is_refused_by_name(fields: dict[str, object], start: str) -> None:
    assert refusal(**NO_CODE | fields).startswith(start)


def test_an_update_changes_a_statement_and_makes_none_of_code() -> None:
    existing = registered(**NO_CODE)

    def updated(config: FunctionConfig, **sent: object) -> FunctionConfig:
        return merge(config, read_function_config(sent))

    assert updated(existing, sql="SELECT value FROM b").sql == "SELECT value FROM b"
    assert updated(existing, minPartitions=4).sql == TEXT
    with pytest.raises(InvalidConfig, match="sql: the statement is empty"):
        updated(existing, sql=" ")
    with pytest.raises(InvalidConfig, match="className: the function is an SQL statement: delete"):
        updated(existing, className="f.F")
    with pytest.raises(InvalidConfig, match=r"sql: the function consists of code \(f\.F\): delete"):
        updated(registered(), sql=TEXT)
