"""What the benchmarks of the broker check before they give a figure: who got what, and that memory is empty."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulsar
import pytest

from benchmarks.broker_rates import Arrivals
from benchmarks.catch_up import drop_pages
from benchmarks.load import hold, official
from benchmarks.plan import Plan
from benchmarks.real_input import APPLICATION, MANY, MANY_KEYS, TYPED, messages_of, official_input

MEMORY_ONLY = Path("/dev/shm")
TIMEOUT_MS = 20_000


@dataclass(frozen=True)
class Given:
    """A message as a consumer sees it."""

    entry: int
    key: str = "k"

    def message_id(self) -> Given:
        return self

    def ledger_id(self) -> int:
        return 1

    def entry_id(self) -> int:
        return self.entry

    def partition_key(self) -> str:
        return self.key


class Consumer:
    """A consumer of which only acknowledging is asked."""

    def acknowledge(self, _message: Given) -> None:
        """Note nothing."""


def arrived(*messages: Given, count: int) -> Arrivals:
    found: Any = Arrivals(count)
    for message in messages:
        found(Consumer(), message)
    return found  # type: ignore[no-any-return]


def test_messages_of_different_keys_may_come_in_any_order() -> None:
    arrived(Given(1, "b"), Given(0, "a"), Given(2, "a"), count=3).check(in_order=True)


def test_message_that_came_before_an_earlier_one_of_its_key_is_an_error() -> None:
    overtaken = arrived(Given(2, "a"), Given(1, "b"), Given(0, "a"), count=3)
    overtaken.check(in_order=False)
    with pytest.raises(AssertionError, match=r"received \(1, 0\) of key a after \(1, 2\)"):
        overtaken.check(in_order=True)


@pytest.mark.parametrize("entries", [(0, 1, 1), (0, 1, 2, 2)])
def test_message_that_came_twice_is_an_error(entries: tuple[int, ...]) -> None:
    with pytest.raises(AssertionError, match="of them distinct, of 3"):
        arrived(*map(Given, entries), count=3).check(in_order=False)


@pytest.fixture
def only_in_memory() -> Iterator[Path]:
    if not os.access(MEMORY_ONLY, os.W_OK):
        pytest.skip(f"no file system without a disk at {MEMORY_ONLY}")
    path = MEMORY_ONLY / f"magnetar-test-{os.getpid()}"
    path.write_bytes(b"x" * 100_000)
    yield path
    path.unlink()


def test_file_that_stays_in_memory_is_refused(only_in_memory: Path) -> None:
    with pytest.raises((RuntimeError, OSError)):
        drop_pages(only_in_memory)


def test_messages_with_many_keys_have_nearly_all_of_them() -> None:
    keys = {message.key for message in messages_of(MANY_KEYS, 40_000)}
    assert 0.97 * MANY < len(keys) <= MANY


@pytest.mark.slow
def test_topic_filled_under_a_schema_has_the_official_clients_messages_and_its_schema(tmp_path: Path) -> None:
    plan = Plan(seconds=0.1, repeats=1, directory=tmp_path)
    given = official_input(plan, TYPED, 50)
    with plan.server("broker") as server:
        hold(server.service_url, "t", "s")
        given.fill(server.service_url, "t", 100)
        client = official(server.service_url)
        try:
            consumer = client.subscribe("t", "s", initial_position=pulsar.InitialPosition.Earliest)
            for sent in messages_of(APPLICATION, 100):
                message = consumer.receive(TIMEOUT_MS)
                assert message.data() == sent.payload
                assert message.partition_key() == sent.key
                assert message.schema_version()
        finally:
            client.close()
