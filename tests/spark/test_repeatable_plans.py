"""Which plans count as repeatable, on plans as Catalyst writes them as JSON. Without Spark and a JVM."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.spark.repeatable_plans import EXPRESSIONS, OPERATORS, SOURCE, UDFS, why_unrepeatable

LOGICAL = "org.apache.spark.sql.catalyst.plans.logical."
EXPRESSION = "org.apache.spark.sql.catalyst.expressions."
PLAIN = sorted(EXPRESSIONS - UDFS)
NARROW = sorted(OPERATORS - {SOURCE})


def expression(kind: str, **fields: Any) -> dict[str, Any]:
    return {"class": EXPRESSION + kind, "num-children": 0, **fields}


def operator(name: str, *expressions: dict[str, Any]) -> dict[str, Any]:
    return {"class": LOGICAL + name, "num-children": 1, "list": [[one] for one in expressions], "child": 0}


def source(name: str = "magnetar") -> dict[str, Any]:
    return {"class": LOGICAL + SOURCE, "num-children": 0, "sourceName": name, "output": [[expression("Literal")]]}


def why(*operators: dict[str, Any]) -> str:
    return why_unrepeatable(operators, ["magnetar", "pulsar"])


plans = st.lists(
    st.builds(
        lambda name, found: operator(name, *map(expression, found)),
        st.sampled_from(NARROW),
        st.lists(st.sampled_from(PLAIN), max_size=4),
    ),
    max_size=5,
)


@given(plans)
def test_a_plan_of_what_is_listed_is_repeatable(plan: list[dict[str, Any]]) -> None:
    assert why(*plan, source()) == ""


@given(plans, plans, st.text("ABCxyz", min_size=1).filter(lambda name: name not in OPERATORS))
def test_one_operator_that_is_not_listed_is_enough(
    above: list[dict[str, Any]], below: list[dict[str, Any]], name: str
) -> None:
    assert why(*above, operator(name), *below, source()) == f"it has the operator {name}"


@given(plans, plans, st.sampled_from(["Rand", "Uuid", "AesEncrypt", "CurrentTimestamp", "ScalarSubquery", "Other"]))
def test_one_expression_that_is_not_listed_is_enough_however_deep_it_is(
    above: list[dict[str, Any]], below: list[dict[str, Any]], name: str
) -> None:
    nested = expression("Cast", child={"product-class": "Some", "value": [[expression(name)]]})
    assert why(*above, operator("Project", nested), *below, source()) == f"it has the expression {name}"


@pytest.mark.parametrize("kind", sorted(UDFS))
def test_a_udf_counts_as_spark_counts_it(kind: str) -> None:
    assert why(operator("Project", expression(kind, name="f", udfDeterministic=True)), source()) == ""
    marked = expression(kind, name="f", udfDeterministic=False)
    assert why(operator("Project", marked), source()) == "it has the nondeterministic UDF f"
    assert "nondeterministic UDF" in why(operator("Project", expression(kind)), source())


@pytest.mark.parametrize(
    ("text", "kind"), [("now", "timestamp"), (" Today UTC", "date"), ("tomorrow", "timestamp_ntz")]
)
def test_a_text_that_spark_casts_to_the_time_of_day_is_a_clock(text: str, kind: str) -> None:
    literal = expression("Literal", value=text, dataType="string")
    assert "time of day" in why(operator("Project", expression("Cast", dataType=kind), literal), source())
    assert why(operator("Project", expression("Cast", dataType="int"), literal), source()) == ""


def test_anything_but_one_stream_of_ours_is_unrepeatable() -> None:
    assert why(source("pulsar")) == ""
    assert "does not read exactly one stream" in why(source("kafka"))
    assert "does not read exactly one stream" in why(operator("Project"))
    assert "does not read exactly one stream" in why(operator("Project"), source(), source())
    assert why() != ""
    relation = {"class": LOGICAL + "LocalRelation", "num-children": 0}
    assert why(operator("Project"), relation) == "it has the operator LocalRelation"
