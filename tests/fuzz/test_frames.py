"""Hostile frames harm nobody but their sender: bounded work and memory, and exact results for a client beside it.

`MAGNETAR_FUZZ_S` says for how many seconds frames are sent, `MAGNETAR_FUZZ_SEED` with which seed; both are printed.
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

from .attacker import NAMESPACE, Attacker
from .observed import Observed
from .witness import TOPIC as WITNESS_TOPIC
from .witness import Witness

SHORT_S, LONG_S = 45.0, 120.0
FRAMES_MAX = 1_000_000
CPU_S = 0.5
"""CPU time that one frame may cost: ten times what the dearest honest one of its size does on a slow machine."""
MEMORY_MIB = 400
"""What the broker may grow by: its caches (256 MiB) and what is in flight."""


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_hostile_frames_harm_nobody_but_their_sender(tmp_path: Path) -> None:
    await attack(tmp_path, float(os.environ.get("MAGNETAR_FUZZ_SHORT_S", SHORT_S)))


@pytest.mark.crash
@pytest.mark.timeout(3600)
async def test_hostile_frames_harm_nobody_for_long(tmp_path: Path) -> None:
    await attack(tmp_path, float(os.environ.get("MAGNETAR_FUZZ_S", LONG_S)))


async def attack(directory: Path, seconds: float) -> None:
    seed = int(os.environ.get("MAGNETAR_FUZZ_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"MAGNETAR_FUZZ_SEED={seed}")
    it = server("broker", directory)
    it.start()
    try:
        await asyncio.to_thread(_prepare, it)
        port = int(it.service_url.rsplit(":", 1)[1])
        attacker = Attacker(port, random.Random(seed))
        witness = await Witness.connected(port)
        await _fight(attacker, witness, Observed(it), seconds)
        await attacker.close()
        await witness.close()
        Observed(it).check_log()
    finally:
        code = await asyncio.to_thread(it.stop)
    assert code == 0
    Observed_log_only(it)
    await _reopens_with_what_was_receipted(it, attacker, witness)


def Observed_log_only(it: Server) -> None:
    pass


def _prepare(it: Server) -> None:
    with httpx.Client(base_url=it.web_url, timeout=30) as http:
        for namespace in (NAMESPACE, "public/witness"):
            http.put(f"/admin/v2/namespaces/{namespace}", json={}).raise_for_status()
            keep = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
            http.post(f"/admin/v2/namespaces/{namespace}/retention", json=keep).raise_for_status()


async def _fight(attacker: Attacker, witness: Witness, broker: Observed, seconds: float) -> None:
    await witness.step()
    memory_before = broker.memory_mib()
    end = time.monotonic() + seconds
    frames = 0
    dearest = 0.0
    while time.monotonic() < end and frames < FRAMES_MAX:
        before = broker.cpu_s()
        await asyncio.gather(attacker.step(), witness.step())
        cost = broker.cpu_s() - before
        frames += 1
        if cost > dearest:
            dearest = cost
            print(f"frame {frames}: {cost:.3f} s of CPU: {attacker.said[:200]}")
        assert cost < CPU_S, f"frame {frames} cost {cost:.3f} s of CPU time: {attacker.said}"
        if frames % 50 == 0:
            grown = broker.memory_mib() - memory_before
            assert grown < MEMORY_MIB, f"after frame {frames} the broker has grown by {grown:.0f} MiB: {attacker.said}"
            broker.check_log()
    print(
        f"{frames} frames, the dearest {dearest:.3f} s; grown by {broker.memory_mib() - memory_before:.0f} MiB;"
        f" {len(attacker.receipted)} receipted; {attacker.came.most_common()}"
    )


async def _reopens_with_what_was_receipted(it: Server, attacker: Attacker, witness: Witness) -> None:
    it.start()
    try:
        port = int(it.service_url.rsplit(":", 1)[1])
        raw = await Raw.connected(port)
        answer = await raw.request(
            "GET_TOPICS_OF_NAMESPACE", namespace=NAMESPACE, request_id=1, mode=CommandGetTopicsOfNamespace.ALL
        )
        topics = list(answer.getTopicsOfNamespaceResponse.topics)
        await raw.close()
        found: dict[tuple[int, int], bytes] = {}
        for topic in topics:
            found |= await _content(port, topic)
        missing = attacker.receipted.keys() - found.keys()
        assert not missing, (
            f"{len(missing)} of {len(attacker.receipted)} receipted entries are gone, the first {min(missing)}"
        )
        assert all(found[position] == section for position, section in attacker.receipted.items())
        assert found.keys() <= attacker.receipted.keys() or set(found.values()) <= attacker.sent
        kept = await _content(port, WITNESS_TOPIC)
        assert {position: section[open_payload(section)[1] :] for position, section in kept.items()} == witness.bodies
    finally:
        assert await asyncio.to_thread(it.stop) == 0


async def _content(port: int, topic: str) -> dict[tuple[int, int], bytes]:
    """Every entry of a topic, by position."""
    raw = await Raw.connected(port)
    begin = {"ledgerId": (1 << 64) - 1, "entryId": (1 << 64) - 1}
    answer = await raw.request("SUBSCRIBE", topic=topic, subscription="reader", subType=0, consumer_id=1, request_id=1,
                               durable=False, start_message_id=begin)  # fmt: skip
    assert answer.type == BaseCommand.SUCCESS, answer
    answer = await raw.request("GET_LAST_MESSAGE_ID", consumer_id=1, request_id=2)
    last = answer.getLastMessageIdResponse.last_message_id
    entries: dict[tuple[int, int], bytes] = {}
    while (last.ledgerId, last.entryId) not in entries and last.entryId != (1 << 64) - 1:
        raw.send("FLOW", consumer_id=1, messagePermits=1000)
        frame = await raw.receive()
        if frame.command.type == BaseCommand.MESSAGE:
            id_ = frame.command.message.message_id
            entries[id_.ledgerId, id_.entryId] = frame.payload
    await raw.close()
    return entries
