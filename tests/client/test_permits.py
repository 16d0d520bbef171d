"""Permits of a consumer: how many messages, and about how many bytes, the broker may send ahead."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as some
from magnetar.client.consumers.receive_queue import FIRST_PERMITS, Permits

BYTES_MAX = 1_000_000


class Sender:
    """A broker that sends as much as it may, in entries of so many messages of a size."""

    def __init__(self, permits: Permits, messages: int, message_bytes: int) -> None:
        self.permits = permits
        self.messages = messages
        self.message_bytes = message_bytes
        self.queue: deque[int] = deque()
        self.most_bytes = 0
        self.available = permits.restart()
        self.send()

    def send(self) -> None:
        while self.available > 0:
            self.available -= self.messages
            self.queue.append(self.messages)
            self.permits.arrived(self.messages, self.messages * self.message_bytes)
            self.most_bytes = max(self.most_bytes, sum(self.queue) * self.message_bytes)

    def take(self) -> None:
        self.available += self.permits.release(self.queue.popleft())
        self.send()


@given(some.integers(1, 5000), some.integers(1, 1000), some.integers(1, 200_000), some.integers(0, 1_000_000))
def test_a_queue_never_runs_dry_nor_over(size: int, messages: int, message_bytes: int, bytes_max: int) -> None:
    sender = Sender(Permits(size, bytes_max), messages, message_bytes)
    for _ in range(100):
        assert sender.queue
        sender.take()
    entry = messages * message_bytes
    assert sender.most_bytes <= (size + messages) * message_bytes
    sender.most_bytes = 0
    for _ in range(100):
        sender.take()
    if bytes_max:
        assert sender.most_bytes <= bytes_max + entry + message_bytes


def test_small_messages_have_all_permits_after_a_while() -> None:
    sender = Sender(Permits(4000, BYTES_MAX), 1, 100)
    assert len(sender.queue) == FIRST_PERMITS
    for _ in range(FIRST_PERMITS):
        sender.take()
    assert len(sender.queue) > 3900


def test_large_messages_among_small_ones_shrink_the_queue() -> None:
    sender = Sender(Permits(4000, BYTES_MAX), 1, 100)
    for _ in range(10_000):
        sender.take()
    sender.message_bytes = 100_000
    for _ in range(4000):
        sender.take()
    assert len(sender.queue) <= 11
    sender.message_bytes = 100
    for _ in range(1000):
        sender.take()
    assert len(sender.queue) > 2000
