"""Samples of crashes, matrices, slow tests and tests that run elsewhere, `tests/support/sample.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import take_fewer_examples
from tests.support.sample import NAMES, SEED, SHARE, Sample, example_count, sample_of, seed_of, share_of

ROOT = Path(__file__).parents[1]
ROUNDS = [f"tests/a.py::test_a[{number}]" for number in range(10)] + ["tests/b.py::test_b[x]", "tests/c.py::test_c"]


@pytest.mark.parametrize(("percent", "of_ten"), [(1, 1), (10, 1), (25, 3), (50, 5), (99, 10), (100, 10)])
def test_sample_has_its_share_of_each_test_and_at_least_one(percent: int, of_ten: int) -> None:
    chosen = Sample(percent, 7).chosen(ROUNDS)
    assert {"tests/b.py::test_b[x]", "tests/c.py::test_c"} <= chosen
    assert len(chosen) == of_ten + 2


def test_sample_depends_on_the_seed_alone() -> None:
    assert Sample(30, 1).chosen(ROUNDS) == Sample(30, 1).chosen(ROUNDS[:11]) | {"tests/c.py::test_c"}
    found = {frozenset(Sample(30, seed).chosen(ROUNDS)) for seed in range(20)}
    assert len(found) > 10
    assert set().union(*found) == set(ROUNDS)


def test_a_sample_of_slow_tests_has_some_of_each_file_and_all_that_encode_and_decode() -> None:
    slow = [f"tests/client/test_a.py::test_{number}" for number in range(10)] + ["tests/client/test_b.py::test_b"]
    whole = [
        "tests/wire/test_runs.py::test_c[1]",
        "tests/wire/test_runs.py::test_c[2]",
        "tests/client/test_golden.py::d",
    ]
    chosen = Sample(30, 7, "slow").chosen([*slow, *whole])
    assert {"tests/client/test_b.py::test_b", *whole} <= chosen
    assert len(chosen) == 3 + 1 + 3


@pytest.mark.parametrize("mark", ["elsewhere", "connectors", "spark"])
def test_a_sample_of_files_has_some_tests_of_each(mark: str) -> None:
    repeated = [f"tests/spark/test_on_cluster.py::test_{number}[standalone]" for number in range(10)]
    assert len(Sample(25, 7, mark).chosen(repeated)) == 3
    found = {frozenset(Sample(25, seed, mark).chosen(repeated)) for seed in range(40)}
    assert set().union(*found) == set(repeated)


def test_each_mark_has_its_own_share_and_seed() -> None:
    given = {"MAGNETAR_MATRIX_SHARE": "25", "MAGNETAR_MATRIX_SEED": "5", SHARE: "30"}
    assert sample_of(given, "matrix") == Sample(25, 5, "matrix")
    assert str(sample_of(given, "matrix")) == "MAGNETAR_MATRIX_SHARE=25 MAGNETAR_MATRIX_SEED=5"
    assert sample_of(given, "slow") is None
    assert sample_of(given) == Sample(30, 0)


@pytest.mark.parametrize(
    ("all_of_them", "percent", "run"), [(100, 40, 40), (500, 40, 200), (50, 40, 25), (10, 40, 10), (100, 100, 100)]
)
def test_property_tests_run_a_share_of_their_examples(all_of_them: int, percent: int, run: int) -> None:
    assert example_count(all_of_them, percent) == run


def test_examples_of_a_property_test_are_limited() -> None:
    ran: list[int] = []

    @settings(max_examples=100, database=None)
    @given(st.integers())
    def test_it(number: int) -> None:
        ran.append(number)

    class Item:
        function = staticmethod(test_it)

    take_fewer_examples([Item(), Item()], 40)  # type: ignore[list-item]
    test_it()
    assert len(ran) == 40


def test_nothing_is_left_out_unless_it_is_asked_for() -> None:
    assert sample_of({}) is None
    assert sample_of({SHARE: "", SEED: "3"}) is None
    assert sample_of({SHARE: "40", SEED: "3"}) == Sample(40, 3)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({SHARE: "0"}, "MAGNETAR_CRASH_SHARE=0 is no whole number from 1 to 100"),
        ({SHARE: "101"}, "MAGNETAR_CRASH_SHARE=101 is no whole number from 1 to 100"),
        ({SHARE: "half"}, "MAGNETAR_CRASH_SHARE=half is no whole number from 1 to 100"),
        ({SHARE: "40", SEED: "x"}, "MAGNETAR_CRASH_SEED=x is no whole number"),
    ],
)
def test_wrong_settings_of_a_sample_are_refused_by_name(given: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}$"):
        sample_of(given)


@pytest.mark.slow
def test_pytest_leaves_rounds_out_and_names_the_sample() -> None:
    # This run may be a sample itself.
    of_this_run = {name_of(mark) for mark in NAMES for name_of in (share_of, seed_of)}
    arguments = ["--collect-only", "-v", "-p", "no:cacheprovider", "tests/metadata/test_metadata_log.py"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name not in of_this_run} | {SHARE: "10", SEED: "3"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "a sample of the rounds of crashes: MAGNETAR_CRASH_SHARE=10 MAGNETAR_CRASH_SEED=3" in ran.stdout
    assert "7 of 65 rounds of crashes are in the sample" in ran.stdout
    assert ran.stdout.count("test_every_accepted_request_is_applied_once_and_all_workers_agree[") == 3 + 5
    assert ran.stdout.count("test_the_same_holds_on_the_real_broker[") == 2 + 2
