"""A dead-letter topic is full, terminated or deleted: the message stays, the status says why, the others go on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from magnetar.client import Client

from tests.support.servers import Server, running
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SOURCE = """
def check(text: str) -> str:
    if text.startswith("bad"):
        raise ValueError(text)
    return text
"""
TOPICS = "/admin/v2/persistent/public/default"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("standalone", tmp_path_factory.mktemp("standalone")) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Client]:
    with Client(server.service_url) as client:
        yield client


class Checked:
    """The function, with topics of its own."""

    def __init__(self, server: Server, client: Client, name: str, runtime: str) -> None:
        self.http = httpx.Client(base_url=server.web_url, timeout=60)
        self.path, self.name = f"/admin/v3/functions/public/default/{name}", name
        for topic in ("in", "out", "dead"):
            self.http.put(f"{TOPICS}/{name}-{topic}").raise_for_status()
            self.http.put(f"{TOPICS}/{name}-{topic}/subscription/test").raise_for_status()
        config = {
            "inputs": [f"{name}-in"], "output": f"{name}-out", "runtime": "PYTHON", "className": "f.check",
            "runtimeEnv": runtime, "maxMessageRetries": 0, "deadLetterTopic": f"{name}-dead",
        }  # fmt: skip
        parts: Any = {
            "functionConfig": (None, json.dumps(config), "application/json"),
            "data": ("f.py", SOURCE, "application/octet-stream"),
        }
        answer = self.http.post(self.path, files=parts)
        assert answer.status_code == 204, answer.text
        self.producer = client.create_producer(f"{name}-in")

    def send(self, *texts: str) -> None:
        for text in texts:
            self.producer.send(text.encode())

    def backlog(self, topic: str, subscription: str = "test") -> int:
        stats = self.http.get(f"{TOPICS}/{self.name}-{topic}/stats").json()
        return int(stats["subscriptions"][subscription]["msgBacklog"])

    def unprocessed(self) -> int:
        return self.backlog("in", f"public/default/{self.name}")

    def trouble(self) -> str:
        return str(self.http.get(f"{self.path}/status").json()["instances"][0]["status"]["error"])

    def wait_for_letter(self, count: int) -> None:
        wait_for(lambda: self.backlog("dead") == count, f"{count} letters")
        wait_for(lambda: self.unprocessed() == 0, "acknowledgement of all messages")

    def wait_for_trouble(self, text: str, passed: int) -> None:
        """Wait until one letter is not stored, while other messages are processed."""
        wait_for(lambda: text in self.trouble(), f"{text!r} in the status, not {self.trouble()!r}", 40)
        self.send("good")
        wait_for(lambda: self.backlog("out") == passed, f"{passed} outputs")
        wait_for(lambda: self.unprocessed() == 1, "acknowledgement of all but one message")

    def close(self) -> None:
        self.producer.close()
        self.http.delete(self.path).raise_for_status()
        self.http.close()


@pytest.fixture(params=["thread", "process"])
def checked(request: pytest.FixtureRequest, server: Server, client: Client) -> Iterator[Checked]:
    name = f"{request.node.originalname.removeprefix('test_')}-{request.param}"
    it = Checked(server, client, name[-60:], request.param)
    yield it
    it.close()


def test_topic_that_is_full(checked: Checked) -> None:
    dead = f"{TOPICS}/{checked.name}-dead"
    checked.send("bad 1")
    checked.wait_for_letter(1)
    quota = {"limitSize": 1, "limitTime": -1, "policy": "producer_exception"}
    checked.http.post(f"{dead}/backlogQuota", json=quota).raise_for_status()
    checked.http.put(f"{dead}/unload").raise_for_status()  # closes the producer that is there
    checked.send("bad 2")
    checked.wait_for_trouble("cannot store", 1)
    checked.http.delete(f"{dead}/backlogQuota").raise_for_status()
    checked.wait_for_letter(2)
    assert checked.trouble() == ""


def test_topic_that_is_terminated(checked: Checked) -> None:
    dead = f"{TOPICS}/{checked.name}-dead"
    checked.http.post(f"{dead}/terminate").raise_for_status()
    checked.send("bad 1")
    checked.wait_for_trouble("cannot store", 1)
    checked.http.delete(dead, params={"force": "true"}).raise_for_status()
    wait_for(lambda: checked.unprocessed() == 0, "the letter, in a new topic")
    assert checked.http.get(f"{dead}/stats").json()["msgInCounter"] == 1


def test_topic_that_is_deleted(checked: Checked) -> None:
    dead = f"{TOPICS}/{checked.name}-dead"
    checked.send("bad 1")
    checked.wait_for_letter(1)
    checked.http.delete(dead, params={"force": "true"}).raise_for_status()
    checked.send("bad 2", "good")
    wait_for(lambda: checked.unprocessed() == 0, "the letter, in a new topic")
    assert checked.http.get(f"{dead}/stats").json()["msgInCounter"] == 1
    assert checked.backlog("out") == 1
