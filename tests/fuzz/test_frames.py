"""Hostile frames harm nobody but their sender: bounded work and memory, and exact results for a client beside it.

The seed is printed. It is the same in each `make test`, another one in each `make test-slow` and `make fuzz`;
`MAGNETAR_FUZZ_SEED` sets it.
`MAGNETAR_FUZZ_S` says for how many seconds the long run goes on: 60 in `make test-slow`, 120 in
`make test-crash`, 900 in `make fuzz`.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path

import httpx
import pytest
from magnetar.wire.payload import open_payload
from magnetar.wire.pulsar_api_pb2 import BaseCommand, CommandGetTopicsOfNamespace

from tests.broker.raw import Raw
from tests.support.servers import Server, server

from .attacker import NAMESPACE, STORED, Attacker
from .observed import Observed
from .witness import NAMESPACE as WITNESS_NAMESPACE
from .witness import TOPIC as WITNESS_TOPIC
from .witness import Witness

SEED = 1154409781
SHORT_S, SHORT_FRAMES = 60.0, 5000
LONG_S, LONG_FRAMES = 120.0, 1_000_000
CPU_S = 0.5
"""CPU time that one frame may cost: ten times what the dearest honest one of its size does."""
MEMORY_MIB = 350
"""What the broker may grow by: its caches and what is in flight, as its settings bound them."""
NAMESPACES = (NAMESPACE, "public/default")
"""Where topics come into being: a spoiled name without a namespace is one of the default namespace."""


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_hostile_frames_harm_nobody_but_their_sender(tmp_path: Path) -> None:
    await attack(tmp_path, SHORT_S, SHORT_FRAMES)


@pytest.mark.crash
@pytest.mark.timeout(7200)
async def test_hostile_frames_harm_nobody_for_long(tmp_path: Path) -> None:
    await attack(tmp_path, float(os.environ.get("MAGNETAR_FUZZ_S") or LONG_S), LONG_FRAMES)


async def attack(directory: Path, seconds: float, frames_max: int) -> None:
    seed = int(os.environ.get("MAGNETAR_FUZZ_SEED") or SEED)
    print(f"MAGNETAR_FUZZ_SEED={seed}")
    it = server("broker", directory)
    it.start()
    broker = Observed(it)
    try:
        await asyncio.to_thread(_prepare, it)
        attacker = Attacker(_port(it), random.Random(seed))
        witness = await Witness.connected(_port(it))
        try:
            await _fight(attacker, witness, broker, seconds, frames_max)
            await asyncio.to_thread(_check_statistics, it)
        except BaseException as error:
            print(f"{error!r}; the last frames: {attacker.said}")  # a broker that does not stop either would hide it
            raise
        finally:
            await witness.close()
    finally:
        code = await asyncio.to_thread(it.stop)
    await attacker.close()
    broker.check_log()
    assert code == 0
    await _reopens_with_what_was_receipted(it, attacker, witness)


def _port(it: Server) -> int:
    return int(it.service_url.rsplit(":", 1)[1])


def _prepare(it: Server) -> None:
    with httpx.Client(base_url=it.web_url, timeout=30) as http:
        for namespace in (NAMESPACE, WITNESS_NAMESPACE):
            http.put(f"/admin/v2/namespaces/{namespace}", json={}).raise_for_status()
        for namespace in (*NAMESPACES, WITNESS_NAMESPACE):
            keep = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
            http.post(f"/admin/v2/namespaces/{namespace}/retention", json=keep).raise_for_status()


def _check_statistics(it: Server) -> None:
    """What hostile clients are called and have subscribed as can be shown."""
    with httpx.Client(base_url=it.web_url, timeout=60) as http:
        topics = http.get(f"/admin/v2/persistent/{NAMESPACE}").raise_for_status().json()
        assert set(STORED) <= set(topics)
        for topic in STORED:
            path = f"/admin/v2/{topic.replace('://', '/')}"
            http.get(f"{path}/stats").raise_for_status().json()
            http.get(f"{path}/internalStats").raise_for_status().json()
            http.get(f"{path}/subscriptions").raise_for_status().json()
        http.get("/metrics/").raise_for_status()


async def _fight(attacker: Attacker, witness: Witness, broker: Observed, seconds: float, frames_max: int) -> None:
    await witness.step()
    memory_before = broker.memory_mib()
    end = time.monotonic() + seconds
    dearest = 0.0
    while time.monotonic() < end and attacker.frames < frames_max:
        before, frames_before = broker.cpu_s(), attacker.frames
        await asyncio.gather(attacker.step(), witness.step())
        frames = attacker.frames - frames_before
        cost = (broker.cpu_s() - before) / max(1, frames)
        dearest = max(dearest, cost)
        assert cost < CPU_S, f"frame {attacker.frames} cost {cost:.3f} s of CPU time: {attacker.said}"
        if witness.steps % 50 == 0:
            grown = broker.memory_mib() - memory_before
            assert grown < MEMORY_MIB, f"after frame {attacker.frames} grown by {grown:.0f} MiB: {attacker.said}"
            broker.check_log()
    print(
        f"{attacker.frames} frames, the dearest {dearest:.3f} s of CPU time;"
        f" grown by {broker.memory_mib() - memory_before:.0f} MiB; {len(attacker.receipted)} receipted;"
        f" {witness.steps} by the witness; came {dict(attacker.came.most_common())}"
    )


async def _reopens_with_what_was_receipted(it: Server, attacker: Attacker, witness: Witness) -> None:
    it.start()
    try:
        raw = await Raw.connected(_port(it))
        topics: list[str] = []
        for namespace in NAMESPACES:
            answer = await raw.request(
                "GET_TOPICS_OF_NAMESPACE", namespace=namespace, request_id=1, mode=CommandGetTopicsOfNamespace.ALL
            )
            topics += answer.getTopicsOfNamespaceResponse.topics
        await raw.close()
        found: dict[tuple[int, int], bytes] = {}
        for topic in topics:
            found |= await _content(_port(it), topic)
        receipted = attacker.receipted
        missing = receipted.keys() - found.keys()
        assert not missing, f"{len(missing)} of {len(receipted)} receipted entries are gone, the first {min(missing)}"
        other = [position for position, sections in receipted.items() if found[position] not in sections]
        assert not other, f"{len(other)} of {len(receipted)} receipted entries are others, the first {min(other)}"
        assert set(found.values()) <= attacker.sent
        kept = await _content(_port(it), WITNESS_TOPIC)
        assert {position: section[open_payload(section)[1] :] for position, section in kept.items()} == witness.bodies
    finally:
        assert await asyncio.to_thread(it.stop) == 0


async def _content(port: int, topic: str) -> dict[tuple[int, int], bytes]:
    """Every entry of a topic, by position."""
    raw = await Raw.connected(port)
    begin = {"ledgerId": (1 << 64) - 1, "entryId": (1 << 64) - 1}
    answer = await raw.request(
        "SUBSCRIBE", topic=topic, subscription="reader", subType=0, consumer_id=1, request_id=1, durable=False,
        start_message_id=begin,
    )  # fmt: skip
    assert answer.type == BaseCommand.SUCCESS, answer
    answer = await raw.request("GET_LAST_MESSAGE_ID", consumer_id=1, request_id=2)
    assert answer.type == BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE, f"{topic}: {answer}"
    last = answer.getLastMessageIdResponse.last_message_id
    entries: dict[tuple[int, int], bytes] = {}
    raw.send("FLOW", consumer_id=1, messagePermits=(1 << 31) - 1)
    while (last.ledgerId, last.entryId) not in entries and last.entryId != (1 << 64) - 1:
        try:
            frame = await raw.receive()
        except TimeoutError:
            raise AssertionError(f"{topic} gives {len(entries)} entries, and not its last one, {last}") from None
        if frame.command.type == BaseCommand.MESSAGE:
            id_ = frame.command.message.message_id
            entries[id_.ledgerId, id_.entryId] = frame.payload
    await raw.close()
    return entries
