"""What `make bench-kafka` says when it cannot measure, and what it makes of what was measured."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.apache_kafka import STARTER, ApacheKafka
from benchmarks.beside_kafka import figures
from benchmarks.paced_publish import KAFKA, OURS, SIZE_BYTES, parse, payload
from benchmarks.real_input import APPLICATION, PLAIN
from benchmarks.spark_beside_kafka import OURS_VALUE, PHASES
from tests.support.servers import ROOT, ServerFailed


@pytest.mark.parametrize(
    ("starter", "said"),
    [
        ("", f"no Apache Kafka: set {STARTER} to a program that starts one (make bench-kafka KAFKA=<starter>)"),
        ("/no/such", f"{STARTER}: /no/such is not an executable program: expected one that starts an Apache Kafka"),
    ],
)
@pytest.mark.slow
def test_kafka_that_is_not_named_is_asked_for(starter: str, said: str) -> None:
    command = [sys.executable, "-m", "benchmarks.beside_kafka", "--quick"]
    environment = {**os.environ, STARTER: starter}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith(said)


@pytest.mark.parametrize(
    ("starter", "said"),
    [
        ("", "make: KAFKA= cannot be executed: expected a program that starts Apache Kafka, see docs/development/"),
        ("/no/such", "make: KAFKA=/no/such cannot be executed: expected a program that starts Apache Kafka,"),
    ],
)
def test_make_names_what_is_wrong_before_it_builds_anything(starter: str, said: str) -> None:
    command = ["make", "kafka-given", f"KAFKA={starter}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith(said)


def test_starter_that_fails_is_shown_with_its_words(tmp_path: Path) -> None:
    starter = tmp_path / "starter"
    starter.write_text("#!/bin/sh\necho no Java here >&2\nexit 3\n")
    starter.chmod(0o755)
    kafka = ApacheKafka(str(starter), tmp_path)
    with pytest.raises(ServerFailed, match=r"--heap 1g exited with code 3:\nno Java here\n$"):
        kafka.start()
    kafka.stop()


def test_row_tells_its_number_and_time_and_has_its_size() -> None:
    row = payload(149_999, 1_764_172_800_123_456_789)
    assert len(row) == SIZE_BYTES
    assert parse(row) == (149_999, 1_764_172_800_123_456_789)


def test_rates_are_multiples_of_kafkas_and_times_fractions() -> None:
    rates = {KAFKA: [100.0, 300.0, 200.0], OURS: [400.0, 300.0, 600.0], OURS_VALUE: [100.0, 100.0, 100.0]}
    late = {"p50": 800.0, "p99": 1000.0, "batches": 9.0, "trigger": 500.0}
    one = {"trigger": 300.0, "batches": 15.0, **dict.fromkeys(PHASES, 10.0)}
    found: dict[str, dict[str, Any]] = {
        **{f"{kind} {shape}": rates for kind in ("count", "stream", "pandas") for shape in (PLAIN, APPLICATION)},
        "schema": {KAFKA: [100.0] * 3, OURS: [150.0, 250.0, 300.0]},
        "latency": {KAFKA: [late] * 3, OURS: [{**late, "p50": 200.0}] * 3},
        "trigger": {KAFKA: [one] * 3, OURS: [{**one, "trigger": 600.0}] * 3},
    }
    rows = {figure.name: figure for figure in figures(found, 1_000_000)}
    counted = rows["Spark: count 1 million rows, plain, all columns"]
    assert (counted.ours, counted.peer, counted.factor, counted.verdict) == (400, 200, 2, "met")
    assert counted.note == "by round 4.0×, 1.0×, 3.0×"
    assert rows["Spark: count 1 million rows, plain, value"].verdict == "missed by 75%"
    by_schema = rows["Spark: three columns of 1 million rows by their schema, JSON"]
    assert (by_schema.factor, by_schema.peer_name) == (2.5, "Kafka's source and from_json")
    assert rows["Spark: from publish to row at 10,000 rows/s, p50"].factor == 4
    assert rows["Spark: from publish to row at 10,000 rows/s, p99"].verdict == "missed by 50%"
    assert rows["Spark: trigger with one row"].verdict == "missed by 50%"
