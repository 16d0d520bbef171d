"""A function whose annotations and config contradict each other is refused over REST when it is created or changed."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Cluster

pytestmark = pytest.mark.slow

FUNCTION = "def process(order: dict) -> dict: return order\n"
CONTRADICTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "schema": (
        {"inputSpecs": {"in": {"schemaType": "STRING"}}},
        "inputSpecs[in].schemaType STRING is str in Python, but parameter order of f.process is dict: change one of"
        " them",
    ),
    "SerDe": (
        {"customSerdeInputs": {"in": "IdentitySerDe"}},
        "inputSpecs[in].serdeClassName IdentitySerDe supports bytes, float, int, str, but parameter order of f.process"
        " is dict: remove one of them",
    ),
    "SerDe of the output": (
        {"inputs": ["in"], "output": "out", "outputSerdeClassName": "f.Missing"},
        "SerDe 'f.Missing': module 'f' has no 'Missing'; it defines process",
    ),
    "class": (
        {"inputs": ["in"], "outputTypeClassName": "str"},
        "outputTypeClassName str is str, but the return type of f.process is dict: remove one of them",
    ),
}


async def test_contradictions_are_refused_at_create_and_update(cluster: Cluster) -> None:
    for kind, (config, reason) in CONTRADICTIONS.items():
        answer = await cluster.create("f", FUNCTION, **config)
        assert (answer.status_code, answer.json()["reason"]) == (400, reason), kind
    topic = cluster.topic("in")
    assert (await cluster.create("f", FUNCTION, inputs=[topic])).status_code == 204
    answer = await cluster.send("PUT", "f", {}, customSerdeInputs={topic: "IdentitySerDe"})
    assert answer.status_code == 400
    assert answer.json()["reason"].endswith("parameter order of f.process is dict: remove one of them")
    answer = await cluster.send("PUT", "f", {"f.py": b"def process(order: set): return order\n"})
    assert answer.status_code == 400
    assert answer.json()["reason"].startswith("parameter order of f.process is set, which is not a message type")
