"""Over REST, too, each field that does not work is refused by its name."""

from __future__ import annotations

import pytest

from tests.config.test_field_effects import config_with, refused

from .conftest import Cluster

pytestmark = pytest.mark.slow


async def test_each_field_that_does_not_work_is_refused_at_create(cluster: Cluster) -> None:
    for parameter in refused():
        path, value, reason = parameter.values
        given = {"inputs": ["in"], "output": "out", **config_with(path, value)}
        if path in ("jar", "go"):
            given["py"] = None
        answer = await cluster.create("f", "def process(text): return text\n", **given)
        text = answer.json()["reason"]
        assert answer.status_code == 400, path
        assert path.rpartition(".")[2] in text
        assert reason in text
    assert (await cluster.http.get("/admin/v3/functions/public/default")).json() == []
