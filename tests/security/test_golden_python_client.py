"""The official Python client gets the errors that a real Pulsar gave it, for each role and operation."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulsar
import pytest

from tests.security.secured import make_golden_world, secured
from tests.support.tokens import token

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parent.parent / "golden" / "auth" / "client-matrix.jsonl"
TOPIC = "persistent://sec/ns/t"
TIMEOUTS = ("none", "invalid", "expired")
"""Roles that authentication refuses: the client tries again until its operation times out."""


def operations(client: pulsar.Client, role: str) -> dict[str, Callable[[], Any]]:
    """What was recorded, by its words."""
    return {
        "create producer": lambda: client.create_producer(TOPIC),
        "create producer, topic is missing": lambda: client.create_producer(f"persistent://sec/ns/cl-{role}"),
        "create producer, partitioned topic": lambda: client.create_producer("persistent://sec/ns/p"),
        "create producer, missing namespace": lambda: client.create_producer("persistent://sec/missing/t"),
        "subscribe": lambda: client.subscribe(TOPIC, f"cl-{role}"),
        "subscribe, subscription limited to another role": lambda: client.subscribe(TOPIC, "limited"),
        "subscribe, pattern": lambda: client.subscribe(re.compile("persistent://sec/ns/t.*"), f"pattern-{role}"),
        "reader": lambda: client.create_reader(TOPIC, pulsar.MessageId.earliest),
        "table view": lambda: client.create_table_view(TOPIC),
        "lookup: get_topic_partitions": lambda: client.get_topic_partitions("persistent://sec/ns/p"),
        "get_topic_partitions, missing tenant": lambda: client.get_topic_partitions("persistent://nosuch/ns/t"),
    }


def outcome(operation: Callable[[], Any]) -> str | None:
    try:
        operation()
    except pulsar.PulsarException as error:
        return f"{type(error).__name__}: {error}"
    return None


def play(url: str, role: str, wanted: dict[str, str | None]) -> list[str]:
    """Do all that was recorded as a role; return what came out otherwise."""
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    authentication = pulsar.AuthenticationToken(token(role))
    client = pulsar.Client(url, authentication=authentication, operation_timeout_seconds=10, logger=logger)
    try:
        known = operations(client, role)
        found = [(name, outcome(known[name])) for name in wanted]
    finally:
        client.close()
    return [f"{name} as {role}: {got}, not {wanted[name]}" for name, got in found if got != wanted[name]]


async def test_each_role_gets_the_errors_of_pulsar(tmp_path: Path) -> None:
    wanted: dict[str, dict[str, str | None]] = {}
    for line in GOLDEN.read_text().splitlines():
        row = json.loads(line)
        if row["view"] == "python client" and row["role"] not in TIMEOUTS:
            wanted.setdefault(row["role"], {})[row["operation"]] = row["error"]
    assert sum(map(len, wanted.values())) == 66
    async with secured(tmp_path) as broker:
        await make_golden_world(broker)
        path = "/admin/v2/namespaces/sec/ns/permissions/subscription/limited"
        await broker.superuser("POST", path, ["g1"])
        url = broker.service.broker_url
        found: list[str] = []
        for role, of_role in wanted.items():
            found += await asyncio.to_thread(play, url, role, of_role)
    assert not found, "\n".join(found)
