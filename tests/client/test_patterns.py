"""Consumers of a pattern: which topics they take, now and later."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.broker.topics.topic_list import topic_filter
from magnetar.client import AsyncClient, Client, ConsumerConfig
from magnetar.client.consumers.pattern import PatternConsumer
from magnetar.client.consumers.topic_pattern import MAX_ASKED_CHARS, TopicPattern
from magnetar.errors import ClosedError, ConsumerBusy, InvalidConfig

from tests.client.clusters import Cluster, OurBroker
from tests.client.proxy import Proxy
from tests.client.test_consumer import assert_nothing_comes, data, publish

NEVER_S = 3600.0
"""Looking for topics so rarely, a test ends before; who hears of a topic then was told by a watch."""


# -- which topics -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "namespace", "taken", "left"),
    [
        ("t/n/a.*", "t/n", ["persistent://t/n/ab", "persistent://t/n/a-partition-3"], ["persistent://t/n/b"]),
        ("persistent://t/n/a|b", "t/n", ["persistent://t/n/a"], ["persistent://t/n/b"]),
        ("a|b", "public/default", ["persistent://public/default/b"], ["persistent://public/default/ab"]),
        ("(?i)A", "public/default", ["persistent://public/default/a"], ["persistent://t/n/a"]),
        ("t/n/a", "t/n", ["non-persistent://t/n/a"], ["persistent://t/n/aa", "persistent://t/m/a"]),
    ],
)
def test_a_pattern_takes_whole_names(pattern: str, namespace: str, taken: list[str], left: list[str]) -> None:
    it = TopicPattern(re.compile(pattern))
    assert it.namespace == namespace
    assert all(map(it.takes, taken))
    assert not any(map(it.takes, left))


@pytest.mark.parametrize("pattern", ["t/.*/a", "t/a", "http://t/n/a", "persistent://a", "/n/a", ".*/.*/.*"])
def test_a_pattern_of_no_namespace_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidConfig, match="pattern"):
        TopicPattern(re.compile(pattern))


@pytest.mark.parametrize(
    ("pattern", "asked"),
    [
        ("t/n/a.*", "t/n/a.*"),
        ("a|b.+c", "public/default/(a|b.+c)"),
        ("t/n/a.*+", "t/n/.*"),  # possessive in Java, not in older Pythons
        ("t/n/(?!a)", "t/n/.*"),
        (r"t/n/\d", "t/n/.*"),
        ("t/n/" + "a" * 60, "t/n/.*"),
        ("t/" + "n" * 60 + "/a", None),
    ],
)
def test_a_broker_is_asked_what_every_engine_reads_alike(pattern: str, asked: str | None) -> None:
    assert TopicPattern(re.compile(pattern)).asked == asked


PIECES = st.sampled_from(["a", "b", ".", ".*", "a+", "b*", "|", "-", "(", ")", "(a|b)", "[ab]", "a{2}", "^", "$", "?"])


@given(st.lists(PIECES, max_size=6), st.text("ab-", min_size=1, max_size=4))
def test_what_a_broker_is_asked_leaves_nothing_out(pieces: list[str], local: str) -> None:
    try:
        pattern = TopicPattern(re.compile("t/n/" + "".join(pieces)))
    except re.error:
        return
    assert pattern.asked is not None
    assert len(pattern.asked) <= MAX_ASKED_CHARS
    name = f"persistent://t/n/{local}"
    assert not pattern.takes(name) or topic_filter(pattern.asked)(name)


# -- on brokers ---------------------------------------------------------------------------------------------------


async def matching(client: AsyncClient, topic: str, **settings: Any) -> PatternConsumer:
    defaults: dict[str, Any] = {"initial_position": "Earliest", "pattern_update_s": NEVER_S}
    config = ConsumerConfig(**(defaults | settings))
    local = topic.rsplit("/", 1)[1]
    made = await client.subscribe(re.compile(f"public/default/{local}-.*"), "s", config)
    assert isinstance(made, PatternConsumer)
    return made


async def until(condition: Callable[[], bool], what: str, timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        await asyncio.sleep(0.02)


@pytest.mark.slow
async def test_a_watch_tells_of_topics_that_come_and_go(client: AsyncClient, cluster: Cluster, topic: str) -> None:
    await publish(client, f"{topic}-a", b"0")
    consumer = await matching(client, topic)
    assert await data(consumer, 1) == [b"0"]
    await publish(client, f"{topic}-b", b"1")
    await publish(client, f"{topic}x", b"2")
    message = await consumer.receive(30)
    assert message.data == b"1"
    await consumer.ack(message)
    assert set(consumer.consumers) == {f"{topic}-a", f"{topic}-b"}
    await asyncio.to_thread(cluster.delete, f"{topic}-b")
    await until(lambda: set(consumer.consumers) == {f"{topic}-a"}, "the deleted topic is left")
    with pytest.raises(ClosedError, match="was removed"):
        consumer.ack(message)
    await publish(client, f"{topic}-b", b"3")  # a second life of the name
    assert await data(consumer, 1) == [b"3"]
    await assert_nothing_comes(consumer)
    await consumer.close()


@pytest.mark.slow
async def test_topics_are_asked_for_where_nobody_tells_of_them(client: AsyncClient, topic: str) -> None:
    consumer = await matching(client, topic, regex_subscription_mode="AllTopics", pattern_update_s=0.05)
    assert consumer.consumers == {}
    await publish(client, f"{topic}-a", b"0")
    assert await data(consumer, 1) == [b"0"]
    await consumer.close()


@pytest.mark.slow
async def test_a_watch_goes_on_after_the_connection(proxied: AsyncClient, proxy: Proxy, topic: str) -> None:
    consumer = await matching(proxied, topic)
    await publish(proxied, f"{topic}-a", b"0")
    await consumer.ack(await consumer.receive(30))
    await consumer.flush_acks()
    proxy.cut()
    await publish(proxied, f"{topic}-b", b"1")
    while (await consumer.receive(30)).data != b"1":
        pass  # the acknowledgement may have been lost with the connection
    await consumer.close()


@pytest.mark.slow
async def test_partitions_are_taken_each_and_new_ones_too(client: AsyncClient, cluster: Cluster, topic: str) -> None:
    consumer = await matching(client, topic)
    await asyncio.to_thread(cluster.create_partitioned, f"{topic}-p", 2)
    for index in range(2):
        await publish(client, f"{topic}-p-partition-{index}", b"%d" % index)
    assert sorted(await data(consumer, 2)) == [b"0", b"1"]
    await asyncio.to_thread(cluster.add_partitions, f"{topic}-p", 3)
    await publish(client, f"{topic}-p-partition-2", b"2")
    assert await data(consumer, 1) == [b"2"]
    await consumer.close()


@pytest.mark.slow
async def test_a_topic_that_is_busy_does_not_keep_the_others_waiting(client: AsyncClient, topic: str) -> None:
    consumer = await matching(client, topic, pattern_update_s=0.1)
    async with asyncio.timeout(60):
        for number in itertools.count():  # until a topic is there whose consumer is not the pattern's
            busy = f"{topic}-a{number}"
            with contextlib.suppress(ConsumerBusy):
                holder = await client.subscribe(busy, "s")
                break
    await publish(client, f"{topic}-b", b"1")
    assert await data(consumer, 1) == [b"1"]
    await holder.close()
    await until(lambda: busy in consumer.consumers, "the topic is consumed once it is free")
    await consumer.close()


@pytest.mark.slow
async def test_a_consumer_does_not_bring_a_deleted_topic_back(
    client: AsyncClient, cluster: Cluster, topic: str
) -> None:
    await publish(client, f"{topic}-a", b"0")
    consumer = await matching(client, topic, pattern_update_s=0)  # neither watches nor looks
    assert await data(consumer, 1) == [b"0"]
    await asyncio.to_thread(cluster.delete, f"{topic}-a")
    await until(lambda: not consumer.consumers, "the topic is left")
    other = await matching(client, topic, pattern_update_s=0)
    assert other.consumers == {}
    await consumer.close()


@pytest.mark.slow
async def test_closing_ends_the_watch_on_the_broker(tmp_path: Path) -> None:
    broker = OurBroker(tmp_path)
    try:
        async with AsyncClient(broker.service_url) as client:
            consumer = await matching(client, "persistent://public/default/t")
            watches = broker.service.topic_watches
            await until(lambda: "t-.*" in repr(watches), "the watch begins")
            await consumer.close()
            await until(lambda: "t-.*" not in repr(watches), "the watch ends")
    finally:
        broker.close()


@pytest.mark.slow
def test_the_blocking_client_takes_patterns(cluster: Cluster, topic: str) -> None:
    client = Client(cluster.service_url)
    try:
        local = topic.rsplit("/", 1)[1]
        consumer = client.subscribe(re.compile(f"{local}-.*"), "s", ConsumerConfig(initial_position="Earliest"))
        client.create_producer(f"{topic}-a").send(b"0")
        assert consumer.receive(30_000).data == b"0"
    finally:
        client.close()


async def test_retry_topics_need_names(client: AsyncClient) -> None:
    with pytest.raises(InvalidConfig, match="retry_enable"):
        await client.subscribe(re.compile("a.*"), "s", ConsumerConfig(type="Shared", retry_enable=True))
