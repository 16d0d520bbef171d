"""The state of a version is kept and comes back as a whole and once, whatever is killed meanwhile.

The outputs tell: each says which code made it, of which input, and the counter in its state by then.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import magnetar
import pytest
from magnetar.client.client import AsyncClient
from magnetar.web.deployments import VERSION_HEADER

from tests.support.exact import all_messages
from tests.support.waiting import wait_for

from .mayhem import StatefulCluster

pytestmark = [pytest.mark.timeout(600), pytest.mark.crash]

SOURCE = """
def process(input, context):
    context.incr_counter("messages", 1)
    return f"VERSION {input} {context.get_counter('messages')}"
"""
KILLED = ["store", "leader", "owner", "broker"]
LATEST_S = 1.5
"""After a request: what it begins takes about a second."""
PAUSE_S = 0.02


class Stream:
    """Publishes numbers without end, from a thread."""

    def __init__(self, cluster: StatefulCluster, topic: str) -> None:
        self.sent = 0
        self._client = magnetar.Client(cluster.broker.service_url)
        self._producer = self._client.create_producer(topic)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        for number in itertools.count():
            if self._is_over.wait(PAUSE_S):
                return
            self._producer.send(str(number).encode())
            self.sent = number + 1

    def end(self) -> int:
        """Publish no more; return how many there are."""
        self._is_over.set()
        self._thread.join()
        self._client.close()
        return self.sent


@contextlib.contextmanager
def streaming(cluster: StatefulCluster, topic: str) -> Iterator[Stream]:
    stream = Stream(cluster, topic)
    try:
        yield stream
    finally:
        stream.end()


class Killing:
    """Requests through a worker that lives, and a kill in the middle of what they begin."""

    def __init__(self, cluster: StatefulCluster, name: str, kind: str, seed: int) -> None:
        self._cluster = cluster
        self._name = name
        self._kind = kind
        self._rng = random.Random(f"{kind} {seed}")

    def path(self, rest: str) -> str:
        return f"/admin/v3/functions/public/default/{self._name}{rest}"

    def versions(self) -> list[int]:
        return [int(one["version"]) for one in self._cluster.get(self.path("/versions"))]

    def during(self, method: str, rest: str, **more: Any) -> None:
        """Ask for something until it is accepted, once, kill in the middle, and wait until it is done."""
        cluster = self._cluster
        doomed = self._doomed()
        taker = next(name for name in cluster.living() if name != doomed)
        before, delay_s = self.versions()[0], self._rng.uniform(0, LATEST_S)
        print(f"{self._kind} is killed {delay_s:.2f} s after {method} {rest}", flush=True)

        def ask() -> None:
            while self.versions()[0] == before:
                answer = httpx.request(
                    method, f"{cluster.workers[taker].worker_url}{self.path(rest)}", timeout=60, **more
                )
                assert answer.is_success or answer.status_code >= 500, answer.text
                assert not answer.is_success or answer.headers[VERSION_HEADER]

        with ThreadPoolExecutor(1) as threads:
            asking = threads.submit(ask)
            time.sleep(delay_s)  # the moment of the kill is what the rounds vary
            self._kill(doomed)
            asking.result()
        version = self.versions()[0]
        cluster.revive()

        def is_running() -> bool:
            with contextlib.suppress(httpx.HTTPError):
                found = cluster.get(self.path(f"/deployment?version={version}"))
                return bool(found["state"] == "running")
            return False

        wait_for(is_running, f"version {version} running", timeout_s=150)

    def _doomed(self) -> str:
        """The worker that is killed; empty if it is none."""
        if self._kind == "leader":
            return self._cluster.leader()
        if self._kind == "owner":
            owners = [name for name, keys in self._cluster.assignments().items() if f"{self._name}:0" in str(keys)]
            return owners[0]
        return ""

    def _kill(self, doomed: str) -> None:
        cluster = self._cluster
        if doomed:
            os.kill(cluster.workers[doomed].pid, signal.SIGKILL)
            cluster.workers[doomed].kill()
        else:
            it = cluster.store if self._kind == "store" else cluster.broker
            it.kill()
            time.sleep(self._rng.uniform(0, 1))
            it.restart()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KILLED)
def test_a_state_is_kept_and_put_back_whole_and_once(stateful: StatefulCluster, kind: str, seed: int) -> None:
    name = f"back_{kind}_{seed}"
    (topic,), (output,) = stateful.make_topic(f"{name}-in"), stateful.make_topic(f"{name}-out")
    config = {
        "className": f"{name}.process", "inputs": [topic], "output": output,
        "processingGuarantees": "EFFECTIVELY_ONCE", "subscriptionPosition": "Earliest",
    }  # fmt: skip
    killing = Killing(stateful, name, kind, seed)

    def outputs() -> list[tuple[str, int, int]]:
        async def read() -> list[bytes]:
            async with AsyncClient(stateful.broker.service_url) as client:
                return await all_messages(client, output)

        return [
            (code, int(number), int(count))
            for code, number, count in (one.decode().split() for one in asyncio.run(read()))
        ]

    with streaming(stateful, topic) as stream, stateful.functions() as functions:
        functions.create(name, SOURCE.replace("VERSION", "one"), config).raise_for_status()
        wait_for(lambda: len(outputs()) > 20, "outputs of the first version", timeout_s=150)
        files: Any = {
            "functionConfig": (None, b"{}", "application/json"),
            "data": (f"{name}.py", SOURCE.replace("VERSION", "two").encode(), "application/octet-stream"),
        }
        killing.during("PUT", "?keepState=true", files=files)
        wait_for(lambda: outputs()[-1][0] == "two", "outputs of the second version", timeout_s=150)
        killing.during("POST", "/rollback?toVersion=0&withState=true")
        wait_for(lambda: outputs()[-1][0] == "one", "outputs of the first version again", timeout_s=150)
        sent = stream.end()
        wait_for(lambda: len(outputs()) >= sent, "all outputs", timeout_s=150)
    found = outputs()
    assert [number for _, number, _ in found] == list(range(sent)), "each input has one output, in its place"
    runs = [list(run) for _, run in itertools.groupby(found, key=lambda one: one[0])]
    assert [run[0][0] for run in runs] == ["one", "two", "one"]
    first, second, third = ([count for _, _, count in run] for run in runs)
    kept = len(first)
    assert first == list(range(1, kept + 1))
    assert second == list(range(kept + 1, kept + 1 + len(second))), "keeping leaves the state as it is"
    assert third == list(range(kept + 1, kept + 1 + len(third))), "put back is what was there when it was replaced"
    with stateful.functions() as functions:
        functions.delete(name)
