"""Watches of topic lists: what a watcher is told always adds up to the list, however slow it reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.broker.session.topic_watches import MAX_NAMES, MAX_WATCHES
from magnetar.broker.topics.topic_list import TopicChanges, TopicList, topic_filter, topics_hash
from magnetar.wire.pulsar_api_pb2 import BaseCommand, CommandWatchTopicUpdate
from magnetar.wire.topic_name import parse_topic_name

from .brokers import running_broker
from .raw import Raw

NAMESPACE = "public/wire"
LOCALS = ("a", "a1", "a1-partition-0", "a1-partition-1", "b", "__change_events", "ab")
PREFIX = f"persistent://{NAMESPACE}/"


class Model:
    """A client: the names that it was told of, to which changes are applied as Java's client does."""

    def __init__(self, names: list[str]) -> None:
        self.names = set(names)
        self.heard: list[str] = []

    def apply(self, deleted: list[str], new: list[str]) -> None:
        assert self.names >= set(deleted)
        self.names -= set(deleted)
        assert not self.names & set(new)
        self.names |= set(new)
        self.heard += [*(f"-{name}" for name in deleted), *(f"+{name}" for name in new)]


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(LOCALS), st.booleans()),
        st.integers(min_value=1, max_value=4),  # the client takes so many
    ),
    max_size=60,
)


@given(CHANGES, st.sets(st.sampled_from(LOCALS)))
def test_what_a_watcher_is_told_adds_up_to_the_list(steps: list[tuple[str, bool] | int], first: set[str]) -> None:
    there = {PREFIX + local for local in first}
    takes = topic_filter(f"{NAMESPACE}/a.*")
    topics = TopicList(takes, there)
    changes, client = TopicChanges(), Model(topics.names)
    for step in steps:
        if isinstance(step, int):
            client.apply(*changes.take(step))
            continue
        name = PREFIX + step[0]
        (there.add if step[1] else there.discard)(name)
        if topics.set_present(name, step[1]):
            changes.note(name, step[1])
        assert topics.names == sorted(name for name in there if takes(name))
        assert topics.digest == topics_hash(topics.names)
    while changes:
        client.apply(*changes.take(1))
    assert sorted(client.names) == topics.names


def test_a_topic_that_went_and_came_back_is_told_as_both() -> None:
    changes = TopicChanges()
    changes.note("t", False)
    changes.note("t", True)
    assert changes.take(1) == (["t"], [])
    assert changes.take(1) == ([], ["t"])


def test_a_topic_that_came_and_went_is_not_told() -> None:
    changes = TopicChanges()
    changes.note("t", True)
    changes.note("t", False)
    assert not changes


async def watch(raw: Raw, pattern: str = f"{NAMESPACE}/.*", watcher_id: int = 1, **more: str) -> BaseCommand:
    return await raw.request(
        "WATCH_TOPIC_LIST", request_id=watcher_id, watcher_id=watcher_id, namespace=NAMESPACE, topics_pattern=pattern,
        **more,
    )  # fmt: skip


async def update(raw: Raw) -> CommandWatchTopicUpdate:
    command = (await raw.receive()).command
    assert command.type == BaseCommand.WATCH_TOPIC_UPDATE, command
    return command.watchTopicUpdate


async def test_a_watcher_that_has_the_list_is_not_sent_it(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.topic(parse_topic_name(f"{NAMESPACE}/t"))
        raw = await Raw.connected(broker.port)
        first = (await watch(raw)).watchTopicListSuccess
        assert first.topic == [f"{PREFIX}t"]
        again = (await watch(raw, topics_hash=first.topics_hash)).watchTopicListSuccess
        assert (list(again.topic), again.topics_hash) == ([], first.topics_hash)
        await raw.close()


async def test_each_watcher_is_told_what_its_pattern_takes_in_its_namespace(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        raw = await Raw.connected(broker.port)
        await watch(raw, f"persistent://{NAMESPACE}/a.*", 1)
        await watch(raw, f"{NAMESPACE}/b", 2)
        for name in ("public/wirelist/a1", f"{NAMESPACE}/c", f"{NAMESPACE}/b", f"{NAMESPACE}/a1"):
            await broker.topic(parse_topic_name(name))
        told = [await update(raw), await update(raw)]
        assert [(one.watcher_id, list(one.new_topics)) for one in told] == [(2, [f"{PREFIX}b"]), (1, [f"{PREFIX}a1"])]
        assert not await raw.barrier()
        await broker.delete_topic(parse_topic_name(f"{NAMESPACE}/b"))
        gone = await update(raw)
        assert (gone.watcher_id, list(gone.deleted_topics), gone.topics_hash) == (2, [f"{PREFIX}b"], "00000000")
        await raw.close()


async def test_topics_of_a_second_life_are_told(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        name = parse_topic_name(f"{NAMESPACE}/t")
        raw = await Raw.connected(broker.port)
        await watch(raw)
        for _ in range(2):
            await broker.topic(name)
            assert (await update(raw)).new_topics == [str(name)]
            await broker.unload_topic(name)
            await broker.topic(name)  # no other topic
            await broker.delete_topic(name)
            assert (await update(raw)).deleted_topics == [str(name)]
        await raw.close()


async def test_a_watcher_that_reads_nothing_is_told_later_and_in_parts(tmp_path: Path) -> None:
    """Until it reads again, its changes are kept once for each topic."""
    names = [f"{PREFIX}{number:05}" for number in range(2 * MAX_NAMES + 1)]
    async with running_broker(tmp_path) as broker:
        raw = await Raw.connected(broker.port)
        await watch(raw)
        connection = next(iter(broker.connections))
        connection.pause_writing()
        for _ in range(3):
            for name in names:
                broker.topic_watches.set_present(NAMESPACE, name, True)
            await asyncio.sleep(0)
            for name in names:
                broker.topic_watches.set_present(NAMESPACE, name, False)
        for name in names:
            broker.topic_watches.set_present(NAMESPACE, name, True)
        connection.resume_writing()
        told = [await update(raw) for _ in range(3)]
        assert [name for one in told for name in one.new_topics] == names
        assert not any(one.deleted_topics for one in told)
        assert [one.topics_hash for one in told] == ["", "", topics_hash(names)]
        assert not await raw.barrier()
        await raw.close()


@pytest.mark.parametrize("end", ["close", "disconnect", "replace"])
async def test_a_watch_that_ended_leaves_nothing(end: str, tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        raw = await Raw.connected(broker.port)
        await watch(raw, f"{NAMESPACE}/.*")
        if end == "close":
            answer = await raw.request("WATCH_TOPIC_LIST_CLOSE", request_id=9, watcher_id=1)
            assert answer.success.request_id == 9
        elif end == "disconnect":
            await raw.close()
            await until(lambda: not broker.connections)
        else:
            await watch(raw, f"{NAMESPACE}/b")
        await broker.topic(parse_topic_name(f"{NAMESPACE}/t"))
        if end != "disconnect":
            assert not await raw.barrier()
        assert repr(broker.topic_watches) == (
            f"TopicWatches({{'{NAMESPACE}': ['{NAMESPACE}/b']}})" if end == "replace" else "TopicWatches({})"
        )
        await raw.close()


async def test_watches_of_one_connection_are_limited(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        raw = await Raw.connected(broker.port)
        for watcher_id in range(MAX_WATCHES):
            assert (await watch(raw, watcher_id=watcher_id)).HasField("watchTopicListSuccess")
        error = (await watch(raw, watcher_id=MAX_WATCHES)).error
        assert f"its limit of {MAX_WATCHES} watches" in error.message
        assert (await watch(raw, watcher_id=7)).HasField("watchTopicListSuccess")  # again is no other one
        await raw.close()


async def test_a_pattern_of_javas_engine_alone_is_refused_and_the_client_polls(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        raw = await Raw.connected(broker.port)
        error = (await watch(raw, f"{NAMESPACE}/(?!a).*")).error
        assert "Unable to create topic list watcher" in error.message
        assert "lookahead" in error.message
        assert repr(broker.topic_watches) == "TopicWatches({})"
        await raw.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
