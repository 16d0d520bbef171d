"""Kill and freeze every process of a cluster with stateful functions under load, one at a time."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil

from tests.support.cluster import TITLE, Cluster
from tests.support.servers import descendants, server
from tests.support.waiting import wait_for

FROZEN_S = 90.0  # the broker notices silence after two to four seconds; then others must take over
STORE_FROZEN_S = 0.4
PRESS_S = 0.15  # what is published at once takes about so long to process
AWAY_S = 3.0  # at most, until a worker that was killed is started again


class StatefulCluster(Cluster):
    """A broker, workers, and a state store in a separate process."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.store = server("state-store", directory / "store")

    def start(self) -> None:
        self.store.start()
        super().start()

    def stop(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(self.store.stop)
            for process in self.instances().values():
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.resume()
            super().stop()

    @property
    def state_url(self) -> str:
        return str(self.store.addresses["stateStorageServiceUrl"])

    def worker_flags(self) -> tuple[str, ...]:
        return ("--state-storage-service-url", self.state_url)

    def log_tail(self) -> str:
        return f"{super().log_tail()}\n--- store\n{self.store.log_tail()}"

    def instances(self, workers: list[str] | None = None) -> dict[str, psutil.Process]:
        """Return the running function processes by name and number, as `f:0`."""
        found = {}
        for name in workers or self.living():
            for process in descendants(self.workers[name].pid):
                with contextlib.suppress(psutil.NoSuchProcess):
                    title = " ".join(process.cmdline())
                    if process.status() != psutil.STATUS_ZOMBIE and title.startswith(TITLE):
                        found[title.removeprefix(TITLE).strip()] = process
        return found

    def make_topic(self, name: str, partitions: int = 0) -> list[str]:
        """Create a topic that retains its messages for `all_messages`; return the full names of its partitions."""
        url = f"{self.broker.web_url}/admin/v2/persistent/public/default/{name}"
        if partitions:
            httpx.put(f"{url}/partitions", json=partitions, timeout=60).raise_for_status()
        else:
            httpx.put(url, timeout=60).raise_for_status()
        httpx.put(f"{url}/subscription/all", timeout=60).raise_for_status()
        full = f"persistent://public/default/{name}"
        return [f"{full}-partition-{number}" for number in range(partitions)] or [full]

    def consumers(self, topics: list[str], subscription: str) -> list[dict[str, int]]:
        """Return the names of a subscription's consumers on each topic, with their instance numbers."""
        found = []
        for topic in topics:
            url = f"{self.broker.web_url}/admin/v2/{topic.replace('://', '/')}/stats"
            stats = httpx.get(url, timeout=10).raise_for_status().json()["subscriptions"][subscription]
            found.append({one["consumerName"]: int(one["metadata"]["instance_id"]) for one in stats["consumers"]})
        return found

    def backlog(self, topics: list[str], subscription: str) -> int:
        """Return the number of unacknowledged entries in the partitions of a topic."""
        path = topics[0].rpartition("-partition-")[0].replace("://", "/")
        url = f"{self.broker.web_url}/admin/v2/{path}/partitioned-stats?perPartition=true"
        partitions = httpx.get(url, timeout=10).raise_for_status().json()["partitions"]
        return sum(partitions[topic]["subscriptions"][subscription]["msgBacklog"] for topic in topics)


class Mayhem:
    """Kills processes at random, and restarts them, as a service supervisor would.

    Attributes:
        done: log of events, for failed tests.
    """

    def __init__(self, cluster: StatefulCluster, function: str, inputs: list[str], rng: random.Random) -> None:
        """Create it without killing a process.

        Args:
            cluster: cluster in which a function is running.
            function: name of the function in public/default.
            inputs: full names of the topics that its instances share as failover consumers.
            rng: source of randomness.
        """
        self.done: list[str] = []
        self._cluster = cluster
        self._function = function
        self._subscription = f"public/default/{function}"
        self._inputs = inputs
        self._rng = rng
        self._more: Callable[[], None] = lambda: None
        self._strikes: dict[str, Callable[[], str]] = {
            "instance": self._instance,
            "worker": self._worker,
            "store": self._store,
            "broker": self._broker,
            "frozen instance": self._frozen_instance,
            "frozen worker": self._frozen_worker,
        }

    def strike(self, kind: str, more: Callable[[], None]) -> None:
        """Kill or freeze a process of a kind, and restart or resume it.

        Args:
            kind: kind of process.
            more: publishes more messages; called shortly before, so that work is in progress.
        """
        began = time.monotonic()
        self._more = more
        what = self._strikes[kind]()
        self.done.append(f"{kind}: {what}, {time.monotonic() - began:.1f} s")
        print(self.done[-1], flush=True)

    def _press(self, at_most_s: float) -> None:
        self._more()
        time.sleep(self._rng.uniform(0, at_most_s))  # the random moment of the blow, not a wait for anything

    def _any_instance(self) -> tuple[str, psutil.Process]:
        def some() -> dict[str, psutil.Process]:
            return self._cluster.instances()

        found = wait_for(some, "function processes", FROZEN_S)
        name = self._rng.choice(sorted(found))
        return name, found[name]

    def _instance(self) -> str:
        while True:
            name, process = self._any_instance()
            self._press(PRESS_S)
            with contextlib.suppress(psutil.NoSuchProcess):  # it was fenced just now, and another is about to start
                process.kill()
                return name

    def _worker(self) -> str:
        name = self._rng.choice(self._cluster.living())
        self._press(PRESS_S)
        self._cluster.workers[name].kill()
        away_s = self._rng.choice((0.0, self._rng.uniform(0, AWAY_S)))
        time.sleep(away_s)  # the random moment, not a wait for anything: longer, and its instances move
        self._cluster.workers[name].restart()
        return f"{name}, away for {away_s:.1f} s"

    def _store(self) -> str:
        self._press(PRESS_S)
        self._cluster.store.kill()
        away_s = self._rng.uniform(0, 1)
        time.sleep(away_s)  # the random moment, not a wait for anything
        self._cluster.store.restart()
        return f"away for {away_s:.1f} s"

    def _broker(self) -> str:
        broker = self._cluster.broker
        self._press(PRESS_S)
        broker.kill()
        broker.restart()
        return "started again"

    def _frozen_instance(self) -> str:
        """Freeze an instance until others serve its partitions, then resume it."""
        while True:
            name, process = self._any_instance()
            with contextlib.suppress(psutil.NoSuchProcess):  # as above
                self._freeze(name, process)
                return name

    def _freeze(self, name: str, process: psutil.Process) -> None:
        """Freeze a process with commits in progress until others have done its work."""

        def names(topics: list[dict[str, int]]) -> set[str]:
            number = int(name.rpartition(":")[2])
            return {one for consumers in topics for one, instance in consumers.items() if instance == number}

        frozen = wait_for(lambda: names(self._consumers()), f"consumers of {name}", FROZEN_S)
        with _frozen([psutil.Process(self._cluster.store.pid)]):
            # Results pile up before the store: the instance will have something to commit when it goes on.
            self._press(STORE_FROZEN_S)
            process.suspend()
        with _frozen([process]):

            def is_replaced() -> bool:
                topics = self._consumers()
                return all(topics) and not names(topics) & frozen and self._is_done()

            wait_for(is_replaced, f"others that do the work of {name}", FROZEN_S)

    def _is_done(self) -> bool:
        """Return whether all input is acknowledged, because others have done the work of a frozen instance."""
        return self._cluster.backlog(self._inputs, self._subscription) == 0

    def _consumers(self) -> list[dict[str, int]]:
        return self._cluster.consumers(self._inputs, self._subscription)

    def _frozen_worker(self) -> str:
        """Freeze a worker and all processes below it until others run its instances, then resume it."""
        cluster = self._cluster
        owners = {name: list(cluster.instances([name])) for name in cluster.living()}
        victim = self._rng.choice([name for name, owned in owners.items() if owned] or list(owners))
        others = [name for name in cluster.living() if name != victim]
        self._press(PRESS_S)
        with _frozen([psutil.Process(cluster.workers[victim].pid), *descendants(cluster.workers[victim].pid)]):
            wanted = {name for owned in owners.values() for name in owned}
            wait_for(lambda: wanted <= set(cluster.instances(others)), f"{wanted} on {others}", FROZEN_S)
            wait_for(self._is_done, f"others that do the work of {owners[victim]}", FROZEN_S)
        return f"{victim} with {owners[victim]}"


@contextlib.contextmanager
def _frozen(processes: list[psutil.Process]) -> Iterator[None]:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()
