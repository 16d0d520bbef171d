"""Apache Pulsar's Java function on a real Pulsar: it takes the entries of the official client as we send them again."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.beside_pulsar import java_rate
from benchmarks.java_function import jars, version_of
from benchmarks.plan import Plan
from benchmarks.real_input import APPLICATION, official_input
from tests.connectors.servers import maven
from tests.support.pulsar import ApachePulsar

pytestmark = [pytest.mark.pulsar, pytest.mark.slow]
COUNT = 150_000
"""Enough for the samples between its warm-up and its end."""


def test_every_output_of_the_java_function_is_as_expected(apache_pulsar: ApachePulsar, tmp_path: Path) -> None:
    maven.require()
    plan = Plan(seconds=1, repeats=1, directory=tmp_path)
    given = official_input(plan, APPLICATION, 50)
    java = jars(version_of(apache_pulsar.web_url))
    assert java_rate(plan, apache_pulsar, java, given, COUNT) > 0
