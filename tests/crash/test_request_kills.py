"""A broker, or the worker that took a request, dies in its middle: the answer is clear, and so is a repetition's."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tests.support.calm import Calm
from tests.support.cluster import Cluster
from tests.support.functions import Functions
from tests.support.pulsar import ApachePulsar, own_name
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.timeout(300)]

ROUNDS = [pytest.param(0, marks=pytest.mark.slow), *(pytest.param(n, marks=pytest.mark.crash) for n in range(1, 6))]
ANSWER_S = 30.0
LATE_S = 3.0  # a broker may be away for longer than a request waits
VERBS = ("create", "update", "delete")
SOURCE = "def process(text):\n    return text\n"
CHANGED = "def process(text):\n    return text + '!'\n"


def config_of(name: str, **changes: Any) -> dict[str, Any]:
    return {"className": f"{name}.process", "inputs": [f"{name}-in"], "runtimeEnv": "thread", **changes}


def request(functions: Functions, verb: str, name: str) -> httpx.Response:
    """What the client asks, the first time and again."""
    if verb == "create":
        return functions.create(name, SOURCE, config_of(name))
    if verb == "update":
        return functions.update(name, CHANGED, config_of(name, userConfig={"changed": True}))
    return httpx.delete(f"{functions.url}{name}", timeout=2 * ANSWER_S)


@dataclass
class Asked:
    """A request on its way in a thread of its own, and how it was answered."""

    cluster: Cluster
    worker: str
    verb: str
    name: str
    status: int | None = None
    text: str = ""
    took: str = ""
    calm_s: float = 0.0
    thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._ask)
        self.thread.start()

    def _ask(self) -> None:
        began = Calm()
        try:
            with self.cluster.functions(self.worker) as functions:
                answer = request(functions, self.verb, self.name)
            self.status, self.text = answer.status_code, answer.text
        except httpx.HTTPError as error:
            self.text = repr(error)  # the worker died: no answer
        self.took, self.calm_s = str(began), began.calm_s

    def join(self) -> None:
        self.thread.join(3 * ANSWER_S)
        assert not self.thread.is_alive()


def prepare(cluster: Cluster, number: int) -> dict[str, str]:
    """Names of functions, verb by verb; those to be changed or deleted are there."""
    names = {verb: own_name(f"{verb}{number}").replace("-", "_") for verb in VERBS}
    with cluster.functions() as functions:
        for verb in ("update", "delete"):
            functions.create(names[verb], SOURCE, config_of(names[verb])).raise_for_status()
    return names


def repeat(cluster: Cluster, worker: str, asked: Asked) -> httpx.Response:
    """Ask once more, as a client does that got no answer or a 503; a leader may have to be found first."""

    def ask() -> httpx.Response | None:
        with cluster.functions(worker) as functions:
            answer = request(functions, asked.verb, asked.name)
        return answer if answer.status_code != 503 else None

    return wait_for(ask, f"answer to the repeated {asked.verb}", 2 * ANSWER_S)


def check(cluster: Cluster, worker: str, names: dict[str, str]) -> None:
    """In the end everything is as if each request had been carried out once, and every worker says so."""

    def is_so(name: str) -> bool:
        there = cluster.get("/admin/v3/functions/public/default", name)
        changed = cluster.get(f"/admin/v3/functions/public/default/{names['update']}", name)
        return (
            names["create"] in there
            and names["delete"] not in there
            and changed.get("userConfig") == {"changed": True}
            and running(cluster, name, names["create"]) == running(cluster, name, names["update"]) == (1, 1)
        )

    for name in cluster.living():
        wait_for(lambda name=name: is_so(name), f"one view of {names} on {name}")  # type: ignore[misc]
    owned = [key for keys in cluster.assignments(worker).values() for key in keys]
    assert len(owned) == len(set(owned))
    assert not [key for key in owned if names["delete"] in key]
    with cluster.functions(worker) as functions:
        for verb in ("create", "update"):
            functions.delete(names[verb])


def running(cluster: Cluster, worker: str, name: str) -> tuple[int, int]:
    status = cluster.get(f"/admin/v3/functions/public/default/{name}/status", worker)
    return status["numInstances"], status["numRunning"]


REPEATED: dict[str, Callable[[httpx.Response], bool]] = {
    "create": lambda answer: answer.is_success or "already exists" in answer.text,
    # The same code and config once more are an update like any other: it is the newest.
    "update": lambda answer: answer.is_success,
    "delete": lambda answer: answer.is_success or (answer.status_code == 404 and "doesn't exist" in answer.text),
}


@pytest.mark.parametrize("whom", ["leader", "follower"])
@pytest.mark.parametrize("number", ROUNDS)
def test_request_is_answered_when_the_broker_dies_in_its_middle(cluster: Cluster, number: int, whom: str) -> None:
    if isinstance(cluster.broker, ApachePulsar):
        cluster.broker.require_starter()
    leader = cluster.leader()
    taker = leader if whom == "leader" else next(name for name in cluster.living() if name != leader)
    names = prepare(cluster, number)
    asked = [Asked(cluster, taker, verb, name) for verb, name in names.items()]
    time.sleep(random.Random(number).uniform(0, 0.15))  # the random moment of the kill, not a wait for anything
    cluster.broker.kill()
    cluster.broker.restart()
    for one in asked:
        one.join()
        print(f"{one.verb} through the {whom}: {one.status} after {one.took} {one.text}")
    for one in asked:
        assert one.status in (204, 503), (one.verb, one.status, one.text)
        assert one.calm_s < ANSWER_S + LATE_S
        if one.status == 503:
            assert '"reason"' in one.text
    for one in asked:
        again = repeat(cluster, taker, one)
        assert REPEATED[one.verb](again), (one.verb, one.status, again.status_code, again.text)
        if one.status == 204 and one.verb != "update":
            assert again.status_code in (400, 404), (one.verb, again.text)
    check(cluster, taker, names)


@pytest.mark.parametrize("number", ROUNDS)
def test_request_is_carried_out_once_or_not_when_the_worker_that_took_it_dies(cluster: Cluster, number: int) -> None:
    leader = cluster.leader()
    taker = next(name for name in cluster.living() if name != leader)
    other = next(name for name in cluster.living() if name not in (leader, taker))
    names = prepare(cluster, number)
    asked = [Asked(cluster, taker, verb, name) for verb, name in names.items()]
    time.sleep(random.Random(number).uniform(0, 0.15))  # the random moment of the kill, not a wait for anything
    cluster.workers[taker].kill()
    for one in asked:
        one.join()
        print(f"{one.verb}: {one.status} after {one.took} {one.text}")
        assert one.status in (None, 204), (one.verb, one.status, one.text)
    for one in asked:
        again = repeat(cluster, other, one)
        assert REPEATED[one.verb](again), (one.verb, one.status, again.status_code, again.text)
        if one.status == 204 and one.verb != "update":
            assert again.status_code in (400, 404), (one.verb, again.text)
    check(cluster, other, names)
