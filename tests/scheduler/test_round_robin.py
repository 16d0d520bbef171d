"""Scheduling decisions over thousands of random clusters, small ones against every possible answer."""

from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.scheduler.assignments import InstanceKey
from magnetar.scheduler.manager import assign, parse_instance_key, rebalance

workers = st.sets(st.sampled_from("abcde"), max_size=5)
keys = st.sets(st.builds(InstanceKey, st.sampled_from(["t/n/f", "t/n/g", "t/n/h"]), st.integers(0, 5)), max_size=12)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[set[InstanceKey], set[str], dict[InstanceKey, str]]:
    instances = draw(keys)
    known = draw(keys)
    current = {key: draw(st.sampled_from("abcdexyz")) for key in sorted(known)}
    return instances, draw(workers), current


@given(clusters())
def test_every_instance_has_one_living_worker(
    cluster: tuple[set[InstanceKey], set[str], dict[InstanceKey, str]],
) -> None:
    instances, living, current = cluster
    decided = assign(instances, living, current)
    assert set(decided) == (instances if living else set())
    assert set(decided.values()) <= living


@given(clusters())
def test_what_has_a_living_worker_stays(cluster: tuple[set[InstanceKey], set[str], dict[InstanceKey, str]]) -> None:
    instances, living, current = cluster
    decided = assign(instances, living, current)
    for key in instances:
        if current.get(key) in living:
            assert decided[key] == current[key]


@given(clusters())
def test_deciding_again_changes_nothing(cluster: tuple[set[InstanceKey], set[str], dict[InstanceKey, str]]) -> None:
    instances, living, current = cluster
    decided = assign(instances, living, current)
    assert assign(sorted(instances, reverse=True), sorted(living, reverse=True), decided) == decided


@given(keys, workers.filter(bool))
def test_from_nothing_the_load_is_even(instances: set[InstanceKey], living: set[str]) -> None:
    load = Counter(assign(instances, living, {}).values())
    counts = [load[worker] for worker in living]
    assert max(counts) - min(counts) <= 1


@given(clusters())
def test_nobody_gets_more_while_somebody_has_less(
    cluster: tuple[set[InstanceKey], set[str], dict[InstanceKey, str]],
) -> None:
    instances, living, current = cluster
    decided = assign(instances, living, current)
    load = Counter(decided.values())
    for worker in {worker for key, worker in decided.items() if current.get(key) not in living}:
        assert all(load[worker] - 1 <= load[other] for other in living)


def test_the_instances_of_one_function_are_spread() -> None:
    instances = [InstanceKey(name, number) for name in ("t/n/f", "t/n/g") for number in range(3)]
    decided = assign(instances, "abc", {})
    for name in ("t/n/f", "t/n/g"):
        assert {decided[InstanceKey(name, number)] for number in range(3)} == {"a", "b", "c"}


def test_the_briefly_absent_keep_what_they_have_and_get_nothing() -> None:
    f0, f1 = InstanceKey("t/n/f", 0), InstanceKey("t/n/f", 1)
    assert assign([f0, f1], ["a"], {f0: "gone"}, missing=["gone"]) == {f0: "gone", f1: "a"}
    assert assign([f0, f1], ["a"], {f0: "gone"}) == {f0: "a", f1: "a"}


def test_without_workers_nothing_new_is_decided() -> None:
    f0 = InstanceKey("t/n/f", 0)
    assert assign([f0], [], {f0: "gone"}, missing=["gone"]) == {f0: "gone"}
    assert assign([f0], [], {}) == {}


@given(st.lists(st.sampled_from("abc"), max_size=5), st.sets(st.sampled_from("abcd")))
def test_rebalance_moves_as_few_as_possible(owners: list[str], more: set[str]) -> None:
    current = {InstanceKey("t/n/f", number): owner for number, owner in enumerate(owners)}
    living = sorted({*owners, *more})
    decided = rebalance(living, current)
    load = Counter(decided.values())
    assert set(decided) == set(current)
    if living:
        assert max(load[worker] for worker in living) - min(load[worker] for worker in living) <= 1
    moves = sum(decided[key] != current[key] for key in current)
    assert moves == fewest_moves(living, owners)


def fewest_moves(living: list[str], owners: list[str]) -> int:
    best = len(owners)
    for answer in product(living, repeat=len(owners)):
        load = Counter(answer)
        if not living or max(load[worker] for worker in living) - min(load[worker] for worker in living) <= 1:
            best = min(best, sum(a != b for a, b in zip(answer, owners, strict=True)))
    return best


def test_an_instance_key_is_read_from_the_right() -> None:
    assert parse_instance_key("t/n/f:x:3") == InstanceKey("t/n/f:x", 3)
    assert str(InstanceKey("t/n/f", 3)) == "t/n/f:3"
    for text in ("t/n/f", ":1", "t/n/f:", "t/n/f:-1", "t/n/f:²"):
        with pytest.raises(ValueError, match="is not an instance key"):
            parse_instance_key(text)
