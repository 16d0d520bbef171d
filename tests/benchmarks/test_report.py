"""RESULTS.md: which rows stand where, and what a group that is measured again leaves of the others."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import report, results
from benchmarks.figure import Figure, Table
from benchmarks.groups import BENCHMARKS, GROUPS, Benchmark, chosen
from benchmarks.plan import Plan
from benchmarks.results import Run
from benchmarks.runner import Commission
from tests.support.servers import ROOT

ROWS = (
    Figure(name="idle memory", ours=100, unit="MiB", target=150, more_is_better=False),
    Figure(name="function, own encoder", ours=600_000, unit="messages/s", target=500_000, table=Table.OWN),
    Figure(name="function, plain", ours=188_000, unit="messages/s", table=Table.OFFICIAL),
    Figure(
        name="function over Pulsar's", ours=120_000, unit="messages/s", peer=60_000, peer_name="Java function",
        target_factor=6, table=Table.PULSAR,
    ),
    Figure(
        name="Spark over Kafka's source", ours=50, unit="ms", peer=150, peer_name="Kafka's source", target_factor=2,
        more_is_better=False, table=Table.KAFKA,
    ),
    Figure(name="function, compiled", ours=2, unit="messages/s", peer=1, peer_name="pure", table=Table.COMPILED),
)  # fmt: skip
MACHINE = ("a processor, 2 cores", "write and fdatasync: 200 µs")


def run(*figures: Figure, group: str = "functions", revision: str = "abc1234", seconds: float = 90.0) -> Run:
    return Run(
        group=group, command=f"make bench GROUP={group}", revision=revision, date="2026-01-02", machine=MACHINE,
        repeats=3, seconds=seconds, figures=figures,
    )  # fmt: skip


def test_ratios_to_pulsar_and_kafka_come_first_then_official_input_then_our_own_encoder() -> None:
    text = report.text({"one": run(*ROWS[:2]), "two": run(*ROWS[2:])})
    places = [text.index(f"## {table.value}") for table in Table]
    assert places == sorted(places)
    names = (
        "function over Pulsar's", "Spark over Kafka's source", "function, plain", "function, compiled",
        "function, own encoder", "idle memory",
    )  # fmt: skip
    rows = [text.index(f"| {name} |") for name in names]
    assert len(rows) == len(places)
    both = [place for pair in zip(places, rows, strict=True) for place in pair]
    assert both == sorted(both)
    assert "| 50 | ms | 150 (Kafka's source) | 3.0× | 2× | met |" in text
    assert "| 120,000 | messages/s | 60,000 (Java function) | 2.0× | 6× | missed by 67% |" in text


def test_table_without_rows_is_left_out() -> None:
    text = report.text({"one": run(ROWS[2])})
    assert f"## {Table.OFFICIAL.value}" in text
    assert f"## {Table.PULSAR.value}" not in text


def test_growth_is_named_where_there_is_some() -> None:
    assert "GROWTH.md" not in report.text({"one": run(ROWS[0])})
    assert "(GROWTH.md)" in report.text({"one": run(dataclasses.replace(ROWS[0], size=100))})


def test_group_that_is_measured_again_replaces_its_own_rows_only(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    results.merge({"functions": run(ROWS[2]), "idle": run(ROWS[0], group="footprint")}, file)
    faster = dataclasses.replace(ROWS[2], ours=1_000_000)
    found = results.merge({"functions": run(faster, revision="def5678")}, file)
    assert found == results.read(file) == {
        "functions": run(faster, revision="def5678"),
        "idle": run(ROWS[0], group="footprint"),
    }  # fmt: skip
    text = report.text(found)
    assert "| functions | `make bench GROUP=functions` | def5678 | 2026-01-02 | 2 |" in text
    assert "| footprint | `make bench GROUP=footprint` | abc1234 | 2026-01-02 | 2 |" in text
    assert text.count(f"- {MACHINE[0]}") == 1


def test_machines_that_differ_are_named_with_their_groups() -> None:
    other = dataclasses.replace(run(ROWS[0], group="footprint"), machine=("another processor",))
    text = report.text({"functions": run(ROWS[2]), "idle": other})
    assert f"- functions: {'; '.join(MACHINE)}\n- footprint: another processor\n" in text


def test_each_benchmark_is_in_one_group_and_all_run_unless_some_are_named() -> None:
    assert sum(map(len, GROUPS.values())) == len(BENCHMARKS)
    assert chosen((), ()) == [(group, list(names)) for group, names in GROUPS.items()]
    assert chosen(["state"], ["publish"]) == [("state", ["state", "state-size"]), ("clients", ["publish"])]


def test_benchmark_that_fails_is_named_and_costs_the_others_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(_plan: Plan) -> list[Figure]:
        raise RuntimeError("no go on this machine")

    commission = Commission(Plan(0.1, 1, tmp_path), MACHINE, written_in=None)
    failed = commission.run("g", "make g", {"a": lambda plan: iter([ROWS[0]]), "b": failing})  # type: ignore[dict-item]
    said = capsys.readouterr()
    assert failed == ["b"]
    assert "| idle memory |" in said.out
    assert "failed: b" in said.out
    assert said.err == "b: RuntimeError: no go on this machine\n"


def test_what_is_written_keeps_the_rows_of_benchmarks_that_failed_or_were_not_run(tmp_path: Path) -> None:
    def failing_late(_plan: Plan) -> Iterator[Figure]:
        yield dataclasses.replace(ROWS[1], ours=1)
        raise RuntimeError("ended too soon")

    commission = Commission(Plan(0.1, 3, tmp_path), MACHINE, written_in=tmp_path)
    first: dict[str, Benchmark] = {"consume": lambda plan: iter([ROWS[1]]), "idle": lambda plan: iter([ROWS[0]])}
    assert commission.run("clients", "make a", first) == []
    again: dict[str, Benchmark] = {"consume": failing_late, "publish": lambda plan: iter([ROWS[2]])}
    assert commission.run("clients", "make b", again) == ["consume"]
    found = results.read(tmp_path / "results.json")
    assert {name: run.command for name, run in found.items()} == {
        "consume": "make a",
        "idle": "make a",
        "publish": "make b",
    }
    text = (tmp_path / "RESULTS.md").read_text()
    assert "| function, own encoder | 600,000 |" in text
    assert "| idle memory |" in text
    assert "| function, plain |" in text
    assert "| clients | `make b`, `make a` |" in text


def test_quick_figures_are_never_written() -> None:
    command = [sys.executable, "-m", "benchmarks", "--quick", "--write", "--only", "idle"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert done.stderr.endswith("--quick cannot be combined with --write: its measurements are too short\n")
