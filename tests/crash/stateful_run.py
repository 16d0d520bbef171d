"""Run one function under load, kill its processes, and inspect its topics and state."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from magnetar.client.client import AsyncClient
from magnetar.state.client import TableClient, Value

from tests.support.exact import all_messages
from tests.support.waiting import wait_for

from .feed import ENTRY_MESSAGES, Feed
from .mayhem import Mayhem, StatefulCluster

PARTITIONS = 6
PROGRESS_S = 120.0
DRAINED_S = 120.0
AIM_SHARE = 0.6  # of what may be published; what is left is in work, though not all of it when the strike comes
WORDS = [f"w{number}" for number in range(2000)]
CONFIG = {"parallelism": 3, "subscriptionPosition": "Earliest", "runtimeEnv": "process"}
KEYS_AT_ONCE = 10_000


WORD_COUNT = """
def process(text, context):
    for word in text.split():
        context.incr_counter(word, 1)
    context.incr_counter("all", 1)
"""


class Run:
    """A function with three instances, its input, and its results."""

    def __init__(
        self,
        cluster: StatefulCluster,
        name: str,
        seed: int,
        source: str,
        sizes: Sequence[int] = ENTRY_MESSAGES,
        **config: Any,
    ) -> None:
        """Create the function and its input topic, without publishing messages.

        Args:
            cluster: cluster to run in.
            name: name of the function; its input is `<name>-in`.
            seed: seed for all random choices.
            source: code of its module. If it has state, its counter `all` counts the messages.
            sizes: sizes of the input's entries, in messages.
            config: further fields of its config.
        """
        print(f"seed {seed}")
        self.cluster = cluster
        self.name = name
        self._subscription = f"public/default/{name}"
        self._has_state = "context" in source
        self.rng = random.Random(seed)
        self.inputs = cluster.make_topic(f"{name}-in", PARTITIONS)
        full = {"className": f"{name}.process", "inputs": [f"{name}-in"], **CONFIG, **config}
        with cluster.functions() as functions:
            functions.create(name, source, full).raise_for_status()
        self.tables = TableClient(cluster.state_url)
        self.feed = Feed(cluster.broker.service_url, self.inputs, sentence, seed, sizes)
        self.mayhem = Mayhem(cluster, name, self.inputs, self.rng)

    def table(self) -> str:
        """Name of the state table."""
        (found,) = self.tables.tables(f"public/default/{self.name}@")
        return found

    def number(self, key: str) -> int:
        """Return a counter of the function, or 0."""
        (value,) = self.tables.read(self.table(), [key.encode()])
        return 0 if value is None else value.number or 0

    def survive(self, kinds: list[str], messages: int) -> None:
        """Publish a number of messages, and kill each kind of process once, at random moments during processing."""
        kinds = self.rng.sample(kinds, len(kinds))
        in_work = 0
        step = messages // len(kinds)
        for number, kind in enumerate(kinds):
            allowed = min(messages, (number + 1) * step)
            self.feed.allow(allowed)
            done = wait_for(self.progress, "state store", PROGRESS_S)[0]
            aim = done + int((allowed - done) * self.rng.uniform(0, AIM_SHARE))
            (done,) = wait_for(lambda aim=aim: self.progress(aim), f"{aim} messages processed", PROGRESS_S)  # type: ignore[misc]
            print(f"{done} of {self.feed.published} processed:", end=" ")
            in_work += done < self.feed.published
            self.mayhem.strike(kind, partial(self.feed.allow, min(messages, allowed + step)))
        assert in_work >= len(kinds) // 3, f"only {in_work} of {len(kinds)} strikes came while there was work"
        self.feed.allow(messages)
        self.feed.finish()
        began = time.monotonic()
        wait_for(self.is_drained, "end of the backlog", DRAINED_S)
        print(f"drained {time.monotonic() - began:.1f} s after the last kill")

    def progress(self, aim: int = 0) -> tuple[int] | None:
        """Wait until a number of messages are processed, and return the current number."""
        done = self.number("all") if self._has_state else self._acknowledged()
        return (done,) if done >= aim else None

    def _acknowledged(self) -> int:
        """Return the approximate number of acknowledged messages."""
        share = 1 - self.cluster.backlog(self.inputs, self._subscription) / max(1, self.feed.entries)
        return int(self.feed.published * share)

    def is_drained(self) -> bool:
        return self.cluster.backlog(self.inputs, self._subscription) == 0

    def stored(self, topic: str) -> list[bytes]:
        """Return all messages that were ever published to a topic."""

        async def read() -> list[bytes]:
            async with AsyncClient(self.cluster.broker.service_url) as client:
                return await all_messages(client, topic)

        return asyncio.run(read())

    def input_texts(self) -> list[list[str]]:
        """Return all messages of each input partition, in order."""
        partitions = [[text.decode() for text in self.stored(topic)] for topic in self.inputs]
        found = {int(name_of(text)[1:]) for texts in partitions for text in texts}
        assert found == set(range(self.feed.published))
        return partitions

    def close(self) -> None:
        self.feed.cancel()
        self.tables.close()
        with self.cluster.functions() as functions:
            functions.delete(self.name)


def sentence(rng: random.Random, number: int) -> bytes:
    return f"m{number} {' '.join(rng.choices(WORDS, k=rng.randrange(6)))}".encode()


def name_of(text: str) -> str:
    """Return the word that only this message contains."""
    return text.split()[0]


def values_of(run: Run, keys: list[str]) -> dict[str, Value | None]:
    """Return the values of keys in the function's state."""
    found: dict[str, Value | None] = {}
    for begin in range(0, len(keys), KEYS_AT_ONCE):
        part = keys[begin : begin + KEYS_AT_ONCE]
        values = run.tables.read(run.table(), [key.encode() for key in part])
        found.update(zip(part, values, strict=True))
    return found


def counters_of(run: Run, keys: list[str]) -> dict[str, int]:
    """Return counters in the function's state, 0 if missing."""
    return {key: 0 if value is None else value.number or 0 for key, value in values_of(run, keys).items()}


def recount(texts: list[str]) -> Counter[str]:
    """Return the counts that `WORD_COUNT` should have."""
    expected = Counter(word for text in texts for word in text.split())
    expected["all"] = len(texts)
    return expected
