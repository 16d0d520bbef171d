"""The same tests on a broker that is given: another process, whose clock nobody moves."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx
import pytest
from magnetar import Context
from magnetar.testing import FunctionTest

from tests.support.servers import Server, running

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("broker", tmp_path_factory.mktemp("broker")) as server:
        yield server


@pytest.fixture(autouse=True)
def given(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAGNETAR_TEST_SERVICE_URL", server.service_url)
    monkeypatch.setenv("MAGNETAR_TEST_ADMIN_URL", server.web_url)


def counted(text: str, context: Context) -> str:
    context.incr_counter("messages", 1)
    context.publish("also", text)
    return f"{text}!"


@pytest.mark.parametrize("guarantee", ["ATLEAST_ONCE", "EFFECTIVELY_ONCE"])
def test_a_function_runs_on_it_and_leaves_no_subscription(server: Server, guarantee: str) -> None:
    with FunctionTest(counted, guarantee=guarantee) as f:
        assert f.cluster.is_real
        f.send("hello", key="k")
        assert f.output() == "hello!"
        assert f.output(topic="also") == "hello"
        assert f.state["messages"] == 1
        assert f.backlog == 0
        f.restart()
        f.send("again")
        assert f.outputs() == ["again!"]
    topics = httpx.get(f"{server.web_url}/admin/v2/persistent/public/default").json()
    ours = [topic for topic in topics if "/in-" in topic]
    assert ours
    for topic in ours:
        path = topic.replace("://", "/")
        assert httpx.get(f"{server.web_url}/admin/v2/{path}/subscriptions").json() == []


def test_dead_letters_leave_no_subscription(server: Server) -> None:
    def fail(text: str) -> None:
        raise ValueError(text)

    with FunctionTest(fail, max_message_retries=0, dead_letter_topic="letters") as f:
        f.send("hello")
        assert "ValueError: hello" in f.failures[0]
        assert f.outputs(topic="letters") == ["hello"]
    topics = httpx.get(f"{server.web_url}/admin/v2/persistent/public/default").json()
    [letters] = [topic for topic in topics if "/letters-" in topic]
    path = letters.replace("://", "/")
    assert httpx.get(f"{server.web_url}/admin/v2/{path}/subscriptions").json() == []


def test_the_clock_is_the_brokers_own() -> None:
    with FunctionTest(counted) as f:
        began_s = time.monotonic()
        f.advance(0.3)
        assert time.monotonic() - began_s >= 0.3
