"""Our broker says what a real Pulsar said in the same conversation (`tests/golden/wire/README.md`).

What differs on purpose, in every conversation: the server's version text, the texts of errors, the feature flags
(no geo-replication, so it is not promised), and the highest sequence id of a receipt whose SEND
had none (Pulsar sends 0 or -1, which mean nothing; ours is left out).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from magnetar.broker.service import BrokerService
from magnetar.wire.topic_name import parse_topic_name

from .brokers import running_broker
from .golden_replay import Action, Json, Replay, load

GOLDEN = Path(__file__).parent.parent / "golden" / "wire"


def partitions(name: str, count: int) -> Action:
    async def act(broker: BrokerService) -> None:
        await broker.namespaces.create_partitioned_topic(parse_topic_name(f"public/wire/{name}"), count, {})

    return act


def terminate(name: str) -> Action:
    async def act(broker: BrokerService) -> None:
        await (await broker.topic(parse_topic_name(f"public/wire/{name}"))).terminate()

    return act


def unload(name: str) -> Action:
    async def act(broker: BrokerService) -> None:
        await broker.unload_topic(parse_topic_name(f"public/wire/{name}"))

    return act


def delete(name: str) -> Action:
    async def act(broker: BrokerService) -> None:
        await broker.delete_topic(parse_topic_name(f"public/wire/{name}"), force=True)

    return act


async def delete_watched(broker: BrokerService) -> None:
    await broker.delete_topic(parse_topic_name("public/wirewatch/a1"))


def compact(name: str) -> Action:
    async def act(broker: BrokerService) -> None:
        topic = await broker.topic(parse_topic_name(f"public/wire/{name}"))
        topic.compaction.begin()
        await topic.compaction.run()
        assert topic.compaction.status == "SUCCESS", topic.compaction.last_error

    return act


def neighbours(scenario: str, answer: int) -> Action:
    """Topics of other conversations: those that the recorded answer lists, and no others."""

    async def act(broker: BrokerService) -> None:
        _, lines = load(GOLDEN / f"{scenario}.jsonl")
        commands = [line.get("command", {}) for line in lines]
        own = {command["producer"]["topic"] for command in commands if command.get("type") == "PRODUCER"}
        listed = {*commands[answer - 1]["getTopicsOfNamespaceResponse"]["topics"]} - own
        there = {*broker.topic_names("public/wire")} - own
        for name in listed - there:
            await broker.topic(parse_topic_name(name))
        for name in there - listed:
            await broker.delete_topic(parse_topic_name(name))

    return act


# What the recorded code asked of the admin REST, before which line.
ACTIONS: dict[str, dict[int, Action]] = {
    "partitioned": {1: partitions("partitioned", 3)},
    "java-partitioned": {1: partitions("java-partitioned", 2)},
    "failover-partitioned": {1: partitions("failover-partitioned", 2)},
    "terminated": {12: terminate("terminated")},
    "java-terminated": {23: terminate("java-terminated")},
    "topic-unloaded": {8: unload("topic-unloaded"), 15: delete("topic-unloaded")},
    "topic-unloaded-client": {33: unload("topic-unloaded-client")},
    "java-topic-unloaded": {32: unload("java-topic-unloaded")},
    "watch-topic-list": {19: delete_watched},
    "regex": {29: neighbours("regex", 30), 71: neighbours("regex", 72)},
    "compacted": {35: compact("compacted")},
    "compacted-tombstone": {43: compact("compacted-tombstone")},
}

SETTINGS: dict[str, dict[str, Any]] = {
    "idle-silent": {"keep_alive_s": 0.2},
    "deduplication": {"deduplication": True},
    "deduplication-client": {"deduplication": True},
}

# The times that SEEKs named, in ms since the conversation began; the recordings show none.
SEEK_TIMES: dict[str, dict[str, int]] = {
    "seek": {"4": 330},
    "seek-raw": {"10": -1_000_000, "12": 1_000_000},
    "java-seek": {"10": 250},
}

# How long after it is sent a delayed message is to be given out, in ms; the recordings show no times.
DELAYS: dict[str, int] = {"delayed": 300, "java-delayed": 300}

# Where the client asks for several topics at once, and Pulsar's answers came in an order that was chance.
SIDE_BY_SIDE = {"regex"}

# Frames that are not compared or not sent, by scenario, with the reason.
IGNORED: dict[str, Callable[[Json], bool]] = {
    # Pulsar says again that the first subscription reached the end when another one does.
    "terminated": lambda line: line.get("command", {}).get("reachedEndOfTopic", {}).get("consumer_id") == "1",
    # A producer that was fenced, waited, and gets the topic again is given its old epoch by Pulsar; ours only grows,
    # so that whoever had the topic in between is told.
    "java-producer-access-modes": lambda line: request_id(line) == "15" and "'producer_ready': True" in str(line),
    # The keep-alive of the minute after which C++ looks for topics again; the replay does not wait that long.
    "regex": lambda line: line.get("command", {}).get("type") in ("PING", "PONG"),
    # Pulsar 4.0.7 kept empty messages without an uncompressed size in the compacted view; later ones remove their keys.
    **dict.fromkeys(
        ("compacted", "compacted-tombstone"),
        lambda line: line.get("command", {}).get("type") == "MESSAGE" and line.get("payload_len") == 0,
    ),
    # The recorded client left before the last message came.
    "java-topic-unloaded": lambda line: line.get("command", {}).get("type") == "MESSAGE" and "g1" in str(line),
}


def request_id(line: Json) -> str | None:
    fields: Json = next((value for key, value in line.get("command", {}).items() if key != "type"), {})
    return fields.get("request_id")


# Conversations that are tested elsewhere or not at all, each with the reason.
SKIPPED = {
    "violations": "the file cannot show what was sent; see test_violations.py",
    "no-lookup": "our broker owns every topic of a namespace that exists, asked for or not",
}

SCENARIOS = sorted(path.stem for path in GOLDEN.glob("*.jsonl") if path.stem not in SKIPPED)


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_broker_answers_as_recorded(scenario: str, tmp_path: Path) -> None:
    _, lines = load(GOLDEN / f"{scenario}.jsonl")

    ignore = IGNORED.get(scenario, lambda line: False)
    async with running_broker(tmp_path, **SETTINGS.get(scenario, {})) as broker:
        replay = Replay(
            broker, lines, ignore=ignore, seek_times=SEEK_TIMES.get(scenario), delay_ms=DELAYS.get(scenario, 0),
            answers_in_order=scenario not in SIDE_BY_SIDE,
        )  # fmt: skip
        await asyncio.wait_for(replay.run(ACTIONS.get(scenario)), 30)
