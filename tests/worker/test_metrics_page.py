"""The list of a worker's metrics is complete, and the dashboard asks for nothing that is not there."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import magnetar
import pytest
from magnetar.wire.functions_pb2 import MetricsData
from magnetar.worker.functions.components import FUNCTION, SINK, SOURCE
from magnetar.worker.functions.instances import InstanceMetrics
from magnetar.worker.rest import metrics
from prometheus_client.parser import text_string_to_metric_families

from tests.support.eventually import eventually

from .conftest import Cluster

DOCS = Path(magnetar.__file__).parent / "docs"


def samples(text: str) -> dict[str, set[str]]:
    """The labels of each metric of an answer."""
    found: dict[str, set[str]] = defaultdict(set)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] |= set(sample.labels)
    return dict(found)


def test_the_page_names_every_metric_of_a_worker() -> None:
    data = MetricsData(processedSuccessfullyTotal=1, userMetrics={"m_sum": 1.0, "m_count": 1.0})
    instances = [InstanceMetrics(f"public/default/{kind.title}:0", kind, data) for kind in (FUNCTION, SOURCE, SINK)]
    # Families are there by instance only; the gauges' names stand in the code that counts.
    source = (Path(magnetar.__file__).parent / "worker" / "assembly.py").read_text()
    gauges = re.findall(r'^ +\("(\w+)", "[A-Z1]', source, re.MULTILINE)
    answered = samples(metrics.render("c", instances, [(name, "help", 1.0) for name in gauges]).decode())
    page = (DOCS / "metrics.md").read_text().partition("\n## Workers")[2]
    rows = [row for row in page.splitlines() if row.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`(pulsar_\w+)`", row)} == set(answered)


def expressions(dashboard: Any) -> Iterator[str]:
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


@pytest.mark.slow
async def test_every_query_of_the_dashboard_finds_something(cluster: Cluster) -> None:
    source = "def process(input): return input\n"
    await cluster.create("seen", source, inputs=[cluster.topic("in")], output=cluster.topic("out"), runtimeEnv="thread")

    async def leads() -> bool:
        return "pulsar_function_worker_is_leader{" in (await cluster.http.get("/metrics")).text

    await eventually(leads, "metrics of the leader")
    answered = samples((await cluster.http.get("/metrics")).text)
    answered |= samples((await cluster.http.get(f"{cluster.broker.web_url}/metrics")).text)
    answered = {name: labels | {"instance", "job"} for name, labels in answered.items()}  # Prometheus adds these
    found = 0
    for text in expressions(json.loads((DOCS / "grafana" / "magnetar.json").read_text())):
        names = re.findall(r"\bpulsar_\w+", text)
        assert names, text
        for name in names:
            found += 1
            assert name in answered, text
        labels = re.findall(r"(\w+)\s*=~", text) + re.findall(r"label_values\(.*, (\w+)\)$", text)
        labels += [label.strip() for group in re.findall(r"\bby \(([^)]*)\)", text) for label in group.split(",")]
        for label in labels:
            assert all(label in answered[name] for name in names), f"{label} in {text}"
    assert found >= 15
