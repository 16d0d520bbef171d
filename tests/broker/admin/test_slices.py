"""Reports about all topics are made in slices: the work of one turn of the event loop does not grow with the topics."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from magnetar.broker.admin.metrics import Gauges
from magnetar.broker.topics.subscription import Subscription
from magnetar.broker.topics.topic import Topic
from magnetar.broker.topics.topic_stats import subscription_stats
from magnetar.tasks import Slices
from magnetar.web.answers import PIECE_BYTES, in_parts
from magnetar.web.exposition import render
from prometheus_client.core import GaugeMetricFamily
from starlette.responses import StreamingResponse

from tests.broker.admin.conftest import RunningBroker

TOPICS = 30
REPORTS = {
    "/metrics": "magnetar.broker.admin.metrics",
    "/admin/v2/broker-stats/metrics": "magnetar.broker.admin.broker_stats",
    "/admin/v2/broker-stats/topics": "magnetar.broker.admin.brokers",
}


class Clock:
    """A clock that advances a millisecond whenever it is read."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 0.001
        return self.now_s


async def test_a_slice_ends_by_the_clock() -> None:
    now_s = 0.0
    slices = Slices(lambda: now_s)
    turns: list[None] = []
    asyncio.get_running_loop().call_soon(turns.append, None)
    now_s = 0.004
    await slices.pause()
    assert not turns
    now_s = 0.005
    await slices.pause()
    assert turns


@pytest.mark.parametrize("path", REPORTS)
async def test_the_topics_of_one_turn_are_few(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    names = [f"persistent://public/default/t{number:02}" for number in range(TOPICS)]
    for name in names:
        assert (await broker.http.put(f"/admin/v2/{name.replace('://', '/')}")).status_code == 204
        assert (await broker.http.get(f"/admin/v2/{name.replace('://', '/')}/stats")).status_code == 200
    in_turn: list[int] = [0]

    def next_turn() -> None:
        in_turn.append(0)
        asyncio.get_running_loop().call_soon(next_turn)

    def counted(topic: Topic, **options: Any) -> Any:
        in_turn[-1] += 1
        return stats(topic, **options)

    stats = Topic.stats
    monkeypatch.setattr(Topic, "stats", counted)
    monkeypatch.setattr(f"{REPORTS[path]}.Slices", partial(Slices, Clock()))
    request = asyncio.create_task(broker.http.get(path))
    next_turn()
    answer = await request
    monkeypatch.undo()
    assert answer.status_code == 200
    assert sum(in_turn) >= TOPICS
    assert max(in_turn) <= 5
    if "topics" in path:
        topics = answer.json()["public/default"]["0x00000000_0xffffffff"]["persistent"]
        assert sorted(topics) == names
        assert topics[names[0]]["msgInCounter"] == 0
    elif path == "/metrics":
        assert answer.text.count("pulsar_msg_backlog{") == TOPICS
        assert answer.text.count("# HELP pulsar_msg_backlog ") == 1


@pytest.mark.parametrize("path", ["/metrics", "/admin/v2/persistent/public/default/t/stats"])
async def test_the_subscriptions_of_one_turn_are_few(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    base = "/admin/v2/persistent/public/default/t"
    assert (await broker.http.put(base)).status_code == 204
    for number in range(TOPICS):
        assert (await broker.http.put(f"{base}/subscription/s{number:02}")).status_code == 204
    in_turn: list[int] = [0]

    def next_turn() -> None:
        in_turn.append(0)
        asyncio.get_running_loop().call_soon(next_turn)

    def counted(subscription: Subscription, **options: Any) -> Any:
        in_turn[-1] += 1
        return subscription_stats(subscription, **options)

    for module in ("metrics", "topics.topics"):
        monkeypatch.setattr(f"magnetar.broker.admin.{module}.Slices", partial(Slices, Clock()))
    monkeypatch.setattr("magnetar.broker.admin.topics.stats.subscription_stats", counted)
    request = asyncio.create_task(broker.http.get(path))
    next_turn()
    answer = await request
    monkeypatch.undo()
    assert answer.status_code == 200
    assert sum(in_turn) == TOPICS
    assert max(in_turn) <= 5
    if path != "/metrics":
        stats = answer.json()
        assert sorted(stats["subscriptions"]) == [f"s{number:02}" for number in range(TOPICS)]
        (topic,) = [one for name, one in broker.service.topics.items() if name.endswith("/t")]
        assert stats.keys() == topic.stats().keys()
        assert stats["subscriptions"]["s00"] == topic.stats()["subscriptions"]["s00"]


@pytest.mark.parametrize("count", [1, 199, 200, 401])
async def test_a_family_in_parts_is_the_same_text(count: int) -> None:
    family = GaugeMetricFamily("g", "Help # me.", labels=("cluster",))
    gauges = Gauges()
    for number in range(count):
        labels = (f'#"t"\n{number}',)
        family.add_metric(labels, number)
        gauges.add("g", labels, number, "Help # me.")
    assert b"".join(await gauges.text(Slices())) == render((family,))
    assert gauges.sum("g") == sum(range(count))


async def test_a_large_answer_is_sent_in_pieces() -> None:
    parts = [b"x" * 1000] * 1000
    response = in_parts(parts, "text/plain")
    assert isinstance(response, StreamingResponse)
    pieces = [piece async for piece in response.body_iterator]
    assert b"".join(piece for piece in pieces if isinstance(piece, bytes)) == b"".join(parts)
    assert max(map(len, pieces)) < PIECE_BYTES + 1000
    assert response.headers["content-length"] == "1000000"
    assert in_parts(parts[:2], "text/plain").body == b"x" * 2000
