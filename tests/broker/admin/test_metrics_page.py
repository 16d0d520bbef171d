"""The page about metrics names those that a broker answers with, and no others."""

from __future__ import annotations

import re
from pathlib import Path

from tests.broker.admin.conftest import RunningBroker

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"


async def test_the_page_names_every_metric_there_is(broker: RunningBroker) -> None:
    topic = "/admin/v2/persistent/public/default/t"
    await broker.http.put(topic)
    await broker.http.put(f"{topic}/subscription/s")
    text = (await broker.http.get("/metrics")).text
    answered = set(re.findall(r"^# TYPE (\w+) gauge$", text, re.MULTILINE))
    assert set(re.findall(r"^(\w+)\{", text, re.MULTILINE)) == answered
    of_the_broker = PAGE.read_text().partition("\n## Workers")[0]
    assert set(re.findall(r"^\| `(\w+)`", of_the_broker, re.MULTILINE)) == answered
