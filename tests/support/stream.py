"""Run continuous load through a function whose outputs name their origin, and check all outputs.

The function adds its instance, a tag, and a word that differs in each run of an instance (see `source`). The output
topic has the order in which the broker accepted the outputs, so it shows whether two runs of an instance overlapped:
then outputs of the earlier run follow outputs of the later one.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import magnetar
from magnetar.client import ConsumerConfig
from magnetar.errors import OperationTimeout

from tests.support.waiting import wait_for

PERIOD_S = 0.01
BURST = 4


def source(tag: str, sleep_s: float = 0.0, every: int = 1) -> str:
    """Return the code of a module with the function `process`.

    Args:
        tag: tag of the outputs, unless the user config has another `tag`.
        sleep_s: processing time of a slow message.
        every: interval of slow messages; others are processed immediately.
    """
    return f"""
import time
import uuid

RUN = uuid.uuid4().hex

def process(text, context):
    if int(text) % {every} == 0:
        time.sleep({sleep_s})
    tag = context.get_user_config_value("tag") or {tag!r}
    return f"{{text}}|{{context.get_instance_id()}}|{{tag}}|{{RUN}}"
"""


@dataclass(frozen=True, slots=True)
class Output:
    """One output: the input, and the run that produced it."""

    number: int
    instance: int
    tag: str
    run: str


class Stream:
    """Publishes numbers one after the other, to each of the topics in turn, and collects the outputs."""

    def __init__(self, service_url: str, topics: list[str], output: str) -> None:
        self._client = magnetar.Client(service_url)
        self._producers = [self._client.create_producer(topic) for topic in topics]
        self._consumer = self._client.subscribe(output, "stream", ConsumerConfig(initial_position="Earliest"))
        self._is_over = threading.Event()
        self._failures: list[BaseException] = []
        self.published = 0
        self.outputs: list[Output] = []
        self._threads = [threading.Thread(target=self._guarded, args=(work,)) for work in (self._publish, self._read)]
        self._is_read = threading.Event()
        for thread in self._threads:
            thread.start()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  told by `finish`
            self._failures.append(error)

    def _publish(self) -> None:
        while not self._is_over.wait(PERIOD_S):
            self.published += BURST  # first: whoever reads it gets a number that is still to come
            for number in range(self.published - BURST, self.published):
                self._producers[number % len(self._producers)].send_async(b"%d" % number, self._sent)
        for producer in self._producers:
            producer.flush()

    def _sent(self, error: Exception | None, _: object) -> None:
        if error is not None:
            self._failures.append(error)

    def _read(self) -> None:
        while not self._is_read.is_set():
            try:
                message = self._consumer.receive(100)
            except OperationTimeout:
                continue
            number, instance, tag, run = message.data.decode().split("|")
            self.outputs.append(Output(int(number), int(instance), tag, run))
            self._consumer.acknowledge(message)

    def wait_for(self, condition: Callable[[list[Output]], object], what: str, timeout_s: float = 60.0) -> None:
        """Wait until the outputs so far meet a condition."""
        wait_for(lambda: condition(self.outputs), what, timeout_s)

    def passed(self) -> int:
        """Wait until a message published from now on has been output, and return its number."""
        first = self.published
        self.wait_for(lambda outputs: any(one.number >= first for one in outputs), f"output of {first} or later")
        return first

    def finish(self, timeout_s: float = 60.0) -> list[Output]:
        """Stop publishing, wait until every message has been output, and return all outputs in order."""
        try:
            self._is_over.set()
            self._threads[0].join(90)
            assert not self._threads[0].is_alive(), "the publisher hangs"
            deadline = time.monotonic() + timeout_s
            while missing := set(range(self.published)) - {one.number for one in self.outputs}:
                assert not self._failures, self._failures
                assert time.monotonic() < deadline, f"{len(missing)} of {self.published} lost: {sorted(missing)[:20]}"
                time.sleep(0.02)
            return list(self.outputs)
        finally:
            self.close()
            assert not self._failures, self._failures

    def close(self) -> None:
        self._is_over.set()
        self._is_read.set()
        for thread in self._threads:
            thread.join(90)
        self._client.close()


def duplicates(outputs: list[Output]) -> int:
    """Return the number of outputs beyond one per input."""
    return len(outputs) - len({one.number for one in outputs})


def check_fenced(outputs: list[Output]) -> None:
    """Check that no run of an instance has outputs after those of a later run of the same instance."""
    current: dict[int, str] = {}
    over: dict[int, Counter[str]] = {}
    for one in outputs:
        before = current.get(one.instance)
        if before != one.run:
            ended = over.setdefault(one.instance, Counter())
            if before is not None:
                ended[before] += 1
            assert one.run not in ended, f"instance {one.instance}: run {one.run} goes on after run {before}: {one}"
            current[one.instance] = one.run
