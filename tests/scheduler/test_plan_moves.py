"""What a plan moves when it evens the load out, and when a worker must be emptied."""

from __future__ import annotations

from collections import Counter

from magnetar.scheduler.assignments import InstanceKey
from magnetar.scheduler.manager import Workforce, plan
from magnetar.wire.functions_pb2 import Assignment, FunctionDetails, FunctionMetaData, Instance

NAME = "public/default/f"


def function(parallelism: int) -> FunctionMetaData:
    details = FunctionDetails(tenant="public", namespace="default", name="f", parallelism=parallelism)
    return FunctionMetaData(functionDetails=details)


def held(metadata: FunctionMetaData, owners: str) -> dict[InstanceKey, Assignment]:
    return {
        InstanceKey(NAME, number): Assignment(
            instance=Instance(functionMetaData=metadata, instanceId=number), workerId=owner
        )
        for number, owner in enumerate(owners)
    }


def moves(owners: str, workforce: Workforce) -> list[str]:
    metadata = function(len(owners))
    records = plan([metadata], workforce, held(metadata, owners))
    return [Assignment.FromString(value).workerId for _, value, _ in records]


def test_a_round_alone_moves_nothing() -> None:
    assert moves("aaaaa", Workforce(frozenset("ab"))) == []


def test_evening_out_moves_no_more_than_it_must() -> None:
    assert moves("aaaaa", Workforce(frozenset("ab"), is_evened_out=True)) == ["b", "b"]
    assert moves("aabb", Workforce(frozenset("ab"), is_evened_out=True)) == []


def test_evening_out_leaves_the_briefly_absent_what_they_have() -> None:
    assert moves("aaacc", Workforce(frozenset("ab"), frozenset("c"), is_evened_out=True)) == ["b"]


def test_worker_that_is_no_longer_available_is_emptied_evenly() -> None:
    assert Counter(moves("aabbcc", Workforce(frozenset("bc")))) == {"b": 1, "c": 1}


def test_last_worker_keeps_what_it_has() -> None:
    assert moves("aa", Workforce(frozenset())) == []
