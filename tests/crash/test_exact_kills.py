"""EFFECTIVELY_ONCE while every process is killed or frozen at random: state and outputs equal a recount, exactly."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from magnetar.client.client import AsyncClient
from magnetar.runtime.state.client import TableClient

from tests.support.exact import all_messages
from tests.support.waiting import wait_for

from .conftest import SERVER
from .feed import Feed
from .mayhem import Mayhem, StatefulCluster

pytestmark = [pytest.mark.timeout(420)]

PARTITIONS = 6
PARALLELISM = 3
PROGRESS_S = 60.0
DRAINED_S = 60.0
WORDS = [f"w{number}" for number in range(2000)]
EXACT = {
    "parallelism": PARALLELISM,
    "subscriptionPosition": "Earliest",
    "processingGuarantees": "EFFECTIVELY_ONCE",
    "runtimeEnv": "process",
}

WORD_COUNT = """
def process(text, context):
    for word in text.split():
        context.incr_counter(word, 1)
    context.incr_counter("all", 1)
"""


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StatefulCluster]:
    cluster = StatefulCluster(tmp_path_factory.mktemp("cluster"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def cluster(started: StatefulCluster, request: pytest.FixtureRequest) -> StatefulCluster:
    request.node.stash[SERVER] = started
    started.revive()
    wait_for(lambda: len(started.get("/admin/v2/worker/cluster")) == len(started.workers), "all members")
    started.leader()
    return started


class Run:
    """One function, its input, and what becomes of it."""

    def __init__(self, cluster: StatefulCluster, name: str, seed: int, source: str, **config: Any) -> None:
        print(f"seed {seed}")
        self.cluster = cluster
        self.name = name
        self.rng = random.Random(seed)
        self.inputs = cluster.make_topic(f"{name}-in", PARTITIONS)
        full = {"className": f"{name}.process", "inputs": [f"{name}-in"], **EXACT, **config}
        with cluster.functions() as functions:
            functions.create(name, source, full).raise_for_status()
        self.tables = TableClient(cluster.state_url)
        self.feed = Feed(cluster.broker.service_url, self.inputs, sentence, seed)
        self.mayhem = Mayhem(cluster, name, self.inputs, self.rng)

    def table(self) -> str:
        """The table of its state."""
        (found,) = self.tables.tables(f"public/default/{self.name}@")
        return found

    def number(self, key: str) -> int:
        """A counter of the function; 0 if there is none."""
        (value,) = self.tables.read(self.table(), [key.encode()])
        return 0 if value is None else value.number or 0

    def survive(self, kinds: list[str], messages: int) -> None:
        """Publish so many messages, and kill once of each kind, at random moments while some of them are in work."""
        self.rng.shuffle(kinds)
        step = messages // len(kinds)
        for number, kind in enumerate(kinds):
            allowed = min(messages, (number + 1) * step)
            self.feed.allow(allowed)
            done = wait_for(self.progress, "state store", PROGRESS_S)[0]
            aim = done + int((allowed - done) * self.rng.uniform(0, 0.9))
            (done,) = wait_for(lambda aim=aim: self.progress(aim), f"{aim} messages processed", PROGRESS_S)  # type: ignore[misc]
            print(f"{done} of {self.feed.published} processed:", end=" ")
            self.feed.allow(min(messages, allowed + step))  # input goes on, for whoever is left
            self.mayhem.strike(kind)
        self.feed.allow(messages)
        self.feed.finish()
        began = time.monotonic()
        wait_for(self.is_drained, "end of the backlog", DRAINED_S)
        print(f"drained {time.monotonic() - began:.1f} s after the last kill")

    def progress(self, aim: int = 0) -> tuple[int] | None:
        """How many messages are processed, once they are so many."""
        done = self.number("all")
        return (done,) if done >= aim else None

    def is_drained(self) -> bool:
        return self.cluster.backlog(self.inputs, f"public/default/{self.name}") == 0

    def stored(self, topic: str) -> list[bytes]:
        """Everything that a topic has ever been given."""

        async def read() -> list[bytes]:
            async with AsyncClient(self.cluster.broker.service_url) as client:
                return await all_messages(client, f"persistent://public/default/{topic}")

        return asyncio.run(read())

    def input_texts(self) -> list[str]:
        """The messages of the input topic: all that were published."""
        texts = [text.decode() for text in self.stored(f"{self.name}-in")]
        assert {int(text.split()[0][1:]) for text in texts} == set(range(self.feed.published))
        return texts

    def close(self) -> None:
        self.feed.cancel()
        self.tables.close()
        with self.cluster.functions() as functions:
            functions.delete(self.name)


def sentence(rng: random.Random, number: int) -> bytes:
    return f"m{number} {' '.join(rng.choices(WORDS, k=rng.randrange(6)))}".encode()


def check_counters(run: Run, expected: Counter[str]) -> None:
    """Each counter of the function's state is what it should be, and there is none but these."""
    keys = sorted(expected)
    found: dict[str, int | None] = {}
    for begin in range(0, len(keys), 10_000):
        part = keys[begin : begin + 10_000]
        values = run.tables.read(run.table(), [key.encode() for key in part])
        found |= {key: None if value is None else value.number for key, value in zip(part, values, strict=True)}
    wrong = {key: (found[key], times) for key, times in expected.items() if found[key] != times}
    assert not wrong, f"{len(wrong)} of {len(keys)} counters differ (found, expected): {list(wrong.items())[:10]}"


@pytest.mark.crash
@pytest.mark.parametrize("seed", [1])
def test_word_count_survives_fifteen_kills_exactly(cluster: StatefulCluster, seed: int) -> None:
    run = Run(cluster, f"words{seed}", seed, WORD_COUNT)
    try:
        kinds = ["instance", "worker", "store", "broker", "frozen instance"] * 3
        kinds[kinds.index("frozen instance")] = "frozen worker"
        run.survive(kinds, 300_000)
        texts = run.input_texts()
        expected = Counter(word for text in texts for word in text.split())
        expected["all"] = len(texts)
        check_counters(run, expected)
    finally:
        run.close()
