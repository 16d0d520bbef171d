"""The processes of a soak: a broker, a state store, and two workers with the instances of both functions."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
from magnetar.state.client import TableClient

from tests.support.functions import Functions
from tests.support.servers import Server, server
from tests.support.waiting import wait_for

from ..load import hold
from ..machine import tree
from .counting import DEAD_LETTERS
from .traffic import READER

INPUT = "soak-in"
PARTITIONS = 2
PARALLELISM = 2
WORKERS = 2
LEAST, EXACT = "at_least_once", "effectively_once"
OUTPUTS = {LEAST: "soak-least", EXACT: "soak-exact"}
DEAD = "soak-dead"
GUARANTEES = {LEAST: "ATLEAST_ONCE", EXACT: "EFFECTIVELY_ONCE"}
KINDS = ("instance", "worker", "state store", "broker")
"""Kinds of processes to kill, repeatedly in this order."""
INSTANCE_TITLE = "magnetar instance "
START_S = 60.0
HTTP_S = 30.0
KEYS_AT_ONCE = 10_000


class Servers:
    """The processes: requests to them, and killing them."""

    def __init__(self, directory: Path, rng: random.Random) -> None:
        self.directory = directory
        self.broker = server("broker", directory / "broker")
        self.store = server("state-store", directory / "store")
        self.workers: list[Server] = []
        self._rng = rng

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Start all servers and both functions; stop them at the end."""
        with contextlib.ExitStack() as stack:
            for it in (self.broker, self.store):
                it.start()
                stack.callback(it.stop)
            for number in range(WORKERS):
                name = f"w{number}"
                addresses = (
                    "--service-url", self.broker.service_url, "--admin-url", self.broker.web_url,
                    "--state-storage-service-url", str(self.store.addresses["stateStorageServiceUrl"]),
                )  # fmt: skip
                worker = server("worker", self.directory / name, "--worker-id", name, *addresses)
                worker.start()
                stack.callback(worker.stop)
                self.workers.append(worker)
            self._deploy()
            yield

    def _deploy(self) -> None:
        topic = f"{self.broker.web_url}/admin/v2/persistent/public/default/{INPUT}"
        httpx.put(f"{topic}/partitions", json=PARTITIONS, timeout=HTTP_S).raise_for_status()
        # The producer resends messages without a receipt when the broker is killed; without deduplication they would be
        # counted twice.
        httpx.post(f"{topic}/deduplicationEnabled", json=True, timeout=HTTP_S).raise_for_status()
        for output in (*OUTPUTS.values(), DEAD):
            hold(self.broker.service_url, output, READER)
        with Functions(self.workers[0].worker_url) as functions:
            for name, output in OUTPUTS.items():
                config = {
                    "className": f"counting.{name}",
                    "inputs": [INPUT],
                    "output": output,
                    "processingGuarantees": GUARANTEES[name],
                    "parallelism": PARALLELISM,
                    "subscriptionPosition": "Earliest",
                    "runtimeEnv": "process",
                    "userConfig": {DEAD_LETTERS: DEAD},
                }
                functions.create(name, Path(__file__).with_name("counting.py"), config).raise_for_status()
        wait_for(lambda: len(self.instances()) == PARALLELISM * len(OUTPUTS), "instances of both functions", START_S)

    # -- questions ------------------------------------------------------------------------------------------------

    def processes(self) -> list[tuple[str, psutil.Process]]:
        """Return all living processes with their kinds."""
        found = []
        for kind, it in (("broker", self.broker), ("state store", self.store), *(("worker", w) for w in self.workers)):
            with contextlib.suppress(psutil.NoSuchProcess):
                top, *below = tree(it.pid)
                found.append((kind, top))
                for process in below:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        title = " ".join(process.cmdline())
                        found.append(("instance" if title.startswith(INSTANCE_TITLE) else "zygote", process))
        return [(kind, process) for kind, process in found if _lives(process)]

    def instances(self) -> list[psutil.Process]:
        """Return the processes of functions."""
        return [process for kind, process in self.processes() if kind == "instance"]

    def is_drained(self) -> bool:
        """Whether both functions have acknowledged all input."""
        url = f"{self.broker.web_url}/admin/v2/persistent/public/default/{INPUT}/partitioned-stats"
        stats = httpx.get(url, params={"perPartition": "true"}, timeout=HTTP_S).raise_for_status().json()
        subscriptions = [one for part in stats["partitions"].values() for one in part["subscriptions"].values()]
        if len(subscriptions) != PARTITIONS * len(OUTPUTS):
            return False
        return all(one["msgBacklog"] == 0 for one in subscriptions)

    def is_read(self) -> bool:
        """Whether the reader has acknowledged all outputs."""
        return all(self._unread(topic) == 0 for topic in (*OUTPUTS.values(), DEAD))

    def _unread(self, topic: str) -> int:
        url = f"{self.broker.web_url}/admin/v2/persistent/public/default/{topic}/stats"
        stats = httpx.get(url, timeout=HTTP_S).raise_for_status().json()
        return int(stats["subscriptions"][READER]["msgBacklog"])

    def state(self, function: str, keys: list[str]) -> dict[str, int]:
        """Return counters of a function, 0 for missing ones."""
        tables = TableClient(str(self.store.addresses["stateStorageServiceUrl"]))
        try:
            (table,) = tables.tables(f"public/default/{function}@")
            found: dict[str, int] = {}
            for begin in range(0, len(keys), KEYS_AT_ONCE):
                part = keys[begin : begin + KEYS_AT_ONCE]
                values = tables.read(table, [key.encode() for key in part])
                found.update((key, value.number or 0 if value else 0) for key, value in zip(part, values, strict=True))
            return found
        finally:
            tables.close()

    # -- kills ----------------------------------------------------------------------------------------------------

    def kill(self, kind: str) -> str:
        """Kill a process of a kind with `kill -9`, restart it unless its parent does, and return its description."""
        if kind == "instance":
            process = self._rng.choice(sorted(self.instances(), key=lambda it: " ".join(it.cmdline())))
            name = " ".join(process.cmdline()).removeprefix(INSTANCE_TITLE).strip()
            process.kill()
            return f"instance {name}"
        worker = self._rng.randrange(WORKERS)
        victim = {"worker": self.workers[worker], "state store": self.store, "broker": self.broker}[kind]
        victim.kill()
        victim.restart()
        return f"worker w{worker}" if kind == "worker" else kind


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
