"""`python -m benchmarks.soak_stream.steady`: the soak's streams for an hour at half load, to check that memory is
constant.

First they process a backlog, which determines their maximum rate. Then half of that rate is published, in entries of
100 rows. At the end, the memory of the broker, the driver, the executors and their Python workers must be the same as
after their start, and so must the live objects in the fixed-size heaps of executors. The output topic must contain each
row once, and the backlog must only consist of the last seconds.

Environment: MAGNETAR_SOAK_S, seconds (3600). Exit code 1 if a check failed, with a line for each cause.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import psutil
from magnetar.client import AsyncClient
from magnetar.client.producers.outgoing import encode_entry

from tests.spark.spark_cluster import EXECUTORS, SparkCluster, command_of, spark_cluster
from tests.support.servers import Server, descendants, running
from tests.support.waiting import wait_for

from ..soak.minutes import Watch
from ..soak.report import Verdict, report
from ..soak.settings import Settings
from ..soak_broker.verdict import judge_memory
from .live_heap import FIXED_HEAP, LiveHeaps
from .program import COPIES, IN, Task
from .rows import KEYS
from .run import PARTITIONS, PROGRESS_S, Driver, make_topics

SECONDS = 3600.0
WAITING = 400_000
"""Number of rows published before the streams start."""
PER_BATCH = 100_000
PER_ENTRY = 100
LOAD = 0.5
JVM_OPTIONS = "spark.executor.extraJavaOptions"
SETTINGS = {
    **EXECUTORS,
    JVM_OPTIONS: f"{EXECUTORS[JVM_OPTIONS]} {FIXED_HEAP}",
    "spark.sql.shuffle.partitions": "2",
}
LOOK_S = 5.0
BEHIND_S_MAX = 60.0
SETTLED_S = 300.0


class Publisher(threading.Thread):
    """Publishes rows with the current time.

    Attributes:
        published: number of rows published so far.
        rate: rows per second; 0 to pause.
        failure: error that ended it, or None.
    """

    def __init__(self, broker: Server) -> None:
        super().__init__(name="publisher", daemon=True)
        self.published = 0
        self.rate = 0.0
        self.failure: Exception | None = None
        self._url = broker.service_url
        self._ends = threading.Event()

    def run(self) -> None:
        """Publish until `end` is called (see `threading.Thread`)."""
        try:
            asyncio.run(self._run())
        except Exception as error:  # noqa: BLE001  raised by the soak's main task
            self.failure = error

    async def _run(self) -> None:
        async with AsyncClient(self._url) as client:
            producers = [await client.create_producer(f"{IN}-partition-{number}") for number in range(PARTITIONS)]
            credit, last_s = float(WAITING), time.monotonic()
            while not self._ends.is_set():
                now_s = time.monotonic()
                credit, last_s = credit + self.rate * (now_s - last_s), now_s
                for _ in range(int(credit) // PER_ENTRY):
                    producer = producers[self.published // PER_ENTRY % PARTITIONS]
                    await producer.ready()
                    producer.send_entry(encode_entry(self._entry(int(time.time() * 1000))))
                    self.published += PER_ENTRY
                    credit -= PER_ENTRY
                await asyncio.sleep(0.02)
            for producer in producers:
                await producer.flush()

    def _entry(self, now_ms: int) -> list[bytes]:
        return [b"%d,%d,%d" % (number, number % KEYS, now_ms) for number in self._numbers()]

    def _numbers(self) -> range:
        return range(self.published, self.published + PER_ENTRY)

    def end(self) -> None:
        """Stop publishing, and wait until all rows are stored."""
        self._ends.set()
        self.join(SETTLED_S)


class SteadySoak:
    """A run of the soak."""

    def __init__(self, settings: Settings, directory: Path) -> None:
        self._settings = settings
        self._directory = directory
        self._watch = Watch()
        self._heaps = LiveHeaps()

    def run(self) -> Verdict:
        """Run all phases.

        Raises:
            Exception: a stream failed or got stuck.
        """
        (self._directory / "cluster").mkdir()
        with ExitStack() as stack:
            broker = stack.enter_context(running("broker", self._directory / "broker"))
            make_topics(broker)
            cluster = stack.enter_context(spark_cluster(self._directory / "cluster"))
            publisher = stack.enter_context(_publishing(broker))
            task = Task(
                directory=str(self._directory),
                master=cluster.master,
                settings=SETTINGS,
                service_url=broker.service_url,
                web_url=broker.web_url,
                rows_per_batch=PER_BATCH,
                period_s=1,
            )
            driver = Driver(task, {**os.environ, **cluster.environment})
            stack.callback(driver.kill)
            return self._course(publisher, driver, broker, cluster)

    def _course(self, publisher: Publisher, driver: Driver, broker: Server, cluster: SparkCluster) -> Verdict:
        most = self._most(driver, broker)
        publisher.rate = LOAD * most
        print(f"maximum {most:,.0f} rows/s; publishing {publisher.rate:,.0f} rows/s", flush=True)
        end_s = time.monotonic() + self._settings.seconds
        minute_s = time.monotonic()
        while time.monotonic() < end_s:
            with suppress(subprocess.TimeoutExpired):
                driver.process.wait(LOOK_S)
            if driver.has_ended() or publisher.failure is not None:
                raise publisher.failure or RuntimeError(f"the driver exited; see {driver.log}")
            self._watch.look(list(_processes(driver, broker, cluster)), time.time())
            if time.monotonic() - minute_s >= self._settings.minute_s:
                minute_s = time.monotonic()
                self._heaps.look(cluster.executors())
                self._tell(publisher, broker)
        behind_s = (publisher.published - _copied(broker)) / publisher.rate
        publisher.end()
        wait_for(lambda: _copied(broker) >= publisher.published or driver.has_ended(), "the last rows", SETTLED_S)
        verdict = Verdict()
        copied = _copied(broker)
        is_exact = copied == publisher.published
        verdict.compare("rows", f"{publisher.published:,} published, {copied:,} copied", is_exact)
        verdict.compare("behind", f"{behind_s:.1f} s, allowed are {BEHIND_S_MAX:g} s", behind_s <= BEHIND_S_MAX)
        for life in (*self._watch.lives.values(), *self._heaps.lives.values()):
            judge_memory(life, verdict)
        return verdict

    def _most(self, driver: Driver, broker: Server) -> float:
        """Return rows per second with a constant backlog; the first batch is for warm-up."""
        wait_for(lambda: _copied(broker) >= PER_BATCH or driver.has_ended(), "the first batch", PROGRESS_S)
        before, begun_s = _copied(broker), time.monotonic()
        wait_for(lambda: _copied(broker) >= WAITING or driver.has_ended(), "the initial rows", PROGRESS_S)
        return (_copied(broker) - before) / (time.monotonic() - begun_s)

    def _tell(self, publisher: Publisher, broker: Server) -> None:
        memory = " ".join(f"{kind} {mib:.0f}" for kind, mib in self._watch.memory_mib().items())
        copied = _copied(broker)
        print(f"{publisher.published:,} published, {copied:,} copied; MiB: {memory}; live: {self._heaps}", flush=True)


@contextmanager
def _publishing(broker: Server) -> Iterator[Publisher]:
    publisher = Publisher(broker)
    publisher.start()
    try:
        yield publisher
    finally:
        publisher.end()


def _copied(broker: Server) -> int:
    url = f"{broker.web_url}/admin/v2/persistent/public/default/{COPIES}/partitioned-stats"
    return int(httpx.get(url, timeout=30).raise_for_status().json()["msgInCounter"])


def _processes(driver: Driver, broker: Server, cluster: SparkCluster) -> Iterator[tuple[str, psutil.Process]]:
    """Yield the processes that the streams need, with their kinds."""
    yield "broker", psutil.Process(broker.pid)
    yield "driver", psutil.Process(driver.process.pid)
    for process in descendants(driver.process.pid):
        if "java" in command_of(process).partition(" ")[0]:
            yield "driver's JVM", process
    for executor in cluster.executors():
        yield "executor", executor
        for process in descendants(executor.pid):
            yield "Python worker", process


def run(settings: Settings, directory: Path, _: random.Random) -> Verdict:
    """Run the soak, printing a line for each minute."""
    return SteadySoak(settings, directory).run()


if __name__ == "__main__":
    sys.exit(report(run, SECONDS))
