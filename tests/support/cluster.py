"""Run three `magnetar worker` processes on one broker, ours or Apache Pulsar, and a function that names its instance.

The broker may have other tenants, so the cluster uses its own namespace and topics.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import magnetar
import psutil
from magnetar.broker.dispatch.single_active import Candidate, choose_active
from magnetar.broker.service import PARTICIPANTS
from magnetar.errors import OperationTimeout

from tests.support.functions import Functions
from tests.support.pulsar import ApachePulsar, Broker, own_name
from tests.support.servers import Server, descendants, server
from tests.support.waiting import wait_for

FUNCTION = "who"
PARALLELISM = 6
WORKERS = 3
SOURCE = "def process(text, context):\n    return f'{text}|{context.get_instance_id()}'\n"
CONFIG = {
    "className": f"{FUNCTION}.process",
    "parallelism": PARALLELISM,
    "subscriptionPosition": "Earliest",
    # A failover subscription: each of the six instances serves exactly one of the six partitions.
    "retainOrdering": True,
    "runtimeEnv": "process",
}
SETTLE_S = 60.0
TITLE = "magnetar instance public/default/"


class Cluster:
    """The processes of a cluster, and requests to them."""

    command = ("cluster",)

    def __init__(self, directory: Path, broker: Broker | None = None, settings: str = "") -> None:
        """Create the cluster without starting processes.

        Args:
            directory: directory for data and logs.
            broker: a running broker to use; by default the cluster starts its own.
            settings: lines of the workers' `functions_worker.yml`.
        """
        self._is_own_broker = broker is None
        self.broker = broker or our_broker(directory)
        self.namespace = f"public/{own_name('cluster')}"
        self.input, self.output = own_name("in"), own_name("out")
        self.config = {**CONFIG, "inputs": [self.input], "output": self.output}
        self.workers: dict[str, Server] = {}
        self._directory = directory
        self._settings = settings
        self._numbers = itertools.count()

    def start(self) -> None:
        """Start the broker and all workers concurrently."""
        if self._is_own_broker:
            self.broker.start()
        worker_file = self._directory / "worker.yml"
        worker_file.write_text(f"pulsarFunctionsNamespace: {self.namespace}\n{self._settings}")
        for number in range(WORKERS):
            name = f"w{number}"
            it = server(
                "worker", self._directory / name, "--worker-id", name, "--config", str(worker_file),
                "--service-url", self.broker.service_url, "--admin-url", self.broker.web_url, *self.worker_flags(),
            )  # fmt: skip
            self.workers[name] = it
            it.start()

    def worker_flags(self) -> tuple[str, ...]:
        """Return further flags of the workers."""
        return ()

    def stop(self) -> None:
        """Stop all running processes."""
        with contextlib.ExitStack() as stack:
            if self._is_own_broker:
                stack.callback(self.broker.stop)
            for it in self.workers.values():
                if it.process is not None:
                    stack.callback(it.stop)
                    with contextlib.suppress(ProcessLookupError):
                        if it.process.poll() is None:
                            os.kill(it.pid, signal.SIGCONT)

    def log_tail(self) -> str:
        """Return the last lines of each process's log."""
        return "\n".join(f"--- {it.directory.name}\n{it.log_tail()}" for it in (self.broker, *self.workers.values()))

    def living(self) -> list[str]:
        """Return the workers that were not killed."""
        return [name for name, it in self.workers.items() if it.process is not None and it.process.poll() is None]

    def revive(self) -> None:
        """Restart the processes that were killed."""
        if isinstance(self.broker, ApachePulsar) and self.broker.is_dead:
            self.broker.restart()
        for name, it in self.workers.items():
            if name not in self.living():
                it.restart()

    def deploy(self) -> None:
        """Create the function that names its instance, with its partitioned input topic."""
        url = f"{self.broker.web_url}/admin/v2/persistent/public/default/{self.input}/partitions"
        httpx.put(url, json=PARALLELISM, timeout=60).raise_for_status()
        with self.functions() as functions:
            functions.create(FUNCTION, SOURCE, self.config).raise_for_status()
        self.settle()

    def assemble(self) -> None:
        """Wait until all workers are members and the final leader leads: a joining worker may take over."""
        wait_for(lambda: len(self.get("/admin/v2/worker/cluster")) == len(self.workers), "all members")
        if isinstance(self.broker, ApachePulsar):
            self.leader()
        else:
            wait_for(lambda: self.leader() == self._chosen(), "leader of the broker's choice")

    def even_out(self) -> None:
        """Wait until all workers are members and one leads, then spread the instances over all of them."""
        self.assemble()
        leader = self.leader()
        httpx.put(f"{self.workers[leader].worker_url}/admin/v2/worker/rebalance", timeout=60).raise_for_status()
        wait_for(lambda: len(self.assignments()) == len(self.workers), "instances on each worker")
        self.settle()

    def _chosen(self) -> str:
        """Return the id of the worker that our broker's hash ring makes the leader."""
        topic = f"persistent://{self.namespace}/coordinate"
        stats = httpx.get(f"{self.broker.web_url}/admin/v2/{topic.replace('://', '/')}/stats", timeout=10)
        consumers = stats.raise_for_status().json()["subscriptions"][PARTICIPANTS]["consumers"]
        names = [str(one["consumerName"]) for one in consumers]
        chosen = choose_active([Candidate(0, name) for name in names], topic, -1)
        assert chosen is not None
        return names[chosen].partition(":")[0]

    def get(self, path: str, worker: str | None = None) -> Any:
        """Send a GET request to a worker, by default the first running one, and return the response."""
        url = self.workers[worker or self.living()[0]].worker_url
        return httpx.get(f"{url}{path}", timeout=30).raise_for_status().json()

    def leader(self, among: list[str] | None = None) -> str:
        """Return the id of the leading worker."""

        def look() -> str | None:
            found = str(self.get("/admin/v2/worker/cluster/leader", (among or self.living())[0])["workerId"])
            url = self.workers[found].worker_url
            ready = httpx.get(f"{url}/admin/v2/worker/cluster/leader/ready", timeout=5)
            return found if found in (among or self.living()) and ready.status_code == 200 else None

        return wait_for(look, "leader that decides")

    def assignments(self, worker: str | None = None) -> dict[str, list[str]]:
        """Return the instances of each worker."""
        return dict(self.get("/admin/v2/worker/assignments", worker))

    def processes(self, workers: list[str] | None = None) -> list[str]:
        """Return the sorted titles of all running function processes; zombies are excluded."""
        found = []
        for name in workers or self.living():
            for process in descendants(self.workers[name].pid):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if process.status() != psutil.STATUS_ZOMBIE:
                        title = " ".join(process.cmdline())
                        if title.startswith(TITLE):
                            found.append(title.removeprefix(TITLE).strip())
        return sorted(found)

    def functions(self, worker: str | None = None) -> Functions:
        """Return the functions REST interface of a worker."""
        return Functions(self.workers[worker or self.living()[0]].worker_url)

    def is_settled(self, workers: list[str]) -> bool:
        """Return whether each instance runs exactly once, on one of these workers, and has its own partition."""
        status = self.get(f"/admin/v3/functions/public/default/{FUNCTION}/status", workers[0])
        running = [one["status"]["workerId"] for one in status["instances"] if one["status"]["running"]]
        if len(running) != PARALLELISM or not set(running) <= set(workers):
            return False
        if [name for name in self.processes(workers) if name.startswith(f"{FUNCTION}:")] != [
            f"{FUNCTION}:{number}" for number in range(PARALLELISM)
        ]:
            return False
        return len(self._active_consumers()) == PARALLELISM

    def _active_consumers(self) -> set[str]:
        url = (
            f"{self.broker.web_url}/admin/v2/persistent/public/default/{self.input}/partitioned-stats?perPartition=true"
        )
        stats = httpx.get(url, timeout=10).raise_for_status().json()
        active = set()
        for partition in stats["partitions"].values():
            (subscription,) = partition["subscriptions"].values()
            if len(subscription["consumers"]) != PARALLELISM:
                return set()
            active.add(subscription["activeConsumerName"])
        return active

    def settle(self, workers: list[str] | None = None, within_s: float = SETTLE_S) -> None:
        """Wait until the function has recovered."""
        among = workers or self.living()
        try:
            wait_for(lambda: self.is_settled(among), f"whole function on {among}", within_s)
        except AssertionError as exc:
            shown = (self.assignments(among[0]), self.processes(among), self._active_consumers())
            raise AssertionError(f"{exc}; {shown}") from exc


def our_broker(directory: Path) -> Server:
    """Return a broker that detects an unresponsive member within seconds."""
    directory.mkdir(parents=True, exist_ok=True)
    broker_file = directory / "broker.yml"
    broker_file.write_text("keepAliveIntervalSeconds: 2\n")
    return server("broker", directory / "broker", "--config", str(broker_file))


class Probe:
    """Publishes to every partition, and receives the outputs."""

    def __init__(self, cluster: Cluster) -> None:
        self._client = magnetar.Client(cluster.broker.service_url)
        self._producers = [
            self._client.create_producer(f"persistent://public/default/{cluster.input}-partition-{number}")
            for number in range(PARALLELISM)
        ]
        self._consumer = self._client.subscribe(f"persistent://public/default/{cluster.output}", "probe")
        self._numbers = itertools.count()

    def close(self) -> None:
        self._client.close()

    def publish(self) -> list[str]:
        """Send one message to every partition, and return the message strings."""
        texts = []
        for producer in self._producers:
            texts.append(f"m{next(self._numbers)}")
            producer.send(texts[-1].encode())
        return texts

    def check_once(self) -> None:
        """Check that a message to every partition is output exactly once, each by another instance."""
        texts = self.publish()
        got: list[tuple[str, str]] = []
        for text, instance in self.outputs(len(texts)):
            got.append((text, instance))
        # What comes too often comes soon: an echo of a further round would not overtake it.
        more = self.publish()
        rest = list(self.outputs(len(more)))
        assert sorted(text for text, _ in got) == sorted(texts), got
        assert sorted(text for text, _ in rest) == sorted(more), (got, rest)
        assert sorted(instance for _, instance in got) == [str(number) for number in range(PARALLELISM)], got

    def outputs(self, count: int) -> Iterator[tuple[str, str]]:
        """Receive a number of outputs, as pairs of string and instance."""
        for _ in range(count):
            yield self._receive(30_000)

    def arrived(self, within_ms: int) -> Iterator[tuple[str, str]]:
        """Receive outputs, as pairs of string and instance, until none arrives for some time."""
        with contextlib.suppress(OperationTimeout):
            while True:
                yield self._receive(within_ms)

    def _receive(self, within_ms: int) -> tuple[str, str]:
        message = self._consumer.receive(within_ms)
        self._consumer.acknowledge(message)
        text, _, instance = message.data.decode().partition("|")
        return text, instance

    def drain(self, texts: list[str]) -> None:
        """Receive outputs until each of the given strings has arrived at least once."""
        missing = set(texts)
        while missing:
            (output,) = self.outputs(1)
            missing.discard(output[0])
