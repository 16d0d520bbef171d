"""The index of topic names, against the names that are present, and the time that listings take from others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.broker.session.lookup_commands import list_answer
from magnetar.broker.session.turns import SLICE_S, TURN_S, Turns
from magnetar.broker.topics.topic_index import MAX_KEPT_LISTS, TopicIndex
from magnetar.broker.topics.topic_list import topics_hash
from magnetar.wire.pulsar_api_pb2 import CommandGetTopicsOfNamespace
from magnetar.wire.topic_name import parse_topic_name

from .brokers import running_broker
from .raw import Raw

ALL = CommandGetTopicsOfNamespace.ALL
NAMES = st.builds(
    "{}://{}/{}".format,
    st.sampled_from(["persistent", "non-persistent"]),
    st.sampled_from(["public/wire", "public/wirelist"]),
    st.sampled_from(["a", "b-partition-0", "a-partition-0", "-partition-0", "__c", "__change_events"]),
)


def names_in(present: set[str], namespace: str, domain: str) -> list[str]:
    return sorted(name for name in present if name.startswith(f"{domain}://{namespace}/"))


@given(st.sets(NAMES), st.lists(st.tuples(NAMES, st.booleans())), st.integers(0, 9))
def test_index_and_kept_lists_follow_every_change(
    first: set[str], changes: list[tuple[str, bool]], read_after: int
) -> None:
    present = set(first)
    index = TopicIndex(lambda: present)
    for number, (name, is_present) in enumerate(changes):
        if number == read_after:
            list_answer(index, CommandGetTopicsOfNamespace(request_id=1, namespace="public/wire", mode=ALL))
        (present.add if is_present else present.discard)(name)
        index.set_present(name, is_present)
    for namespace in ("public/wire", "public/wirelist", "public/absent"):
        stored = names_in(present, namespace, "persistent")
        assert index.names(namespace, "persistent") == stored
        assert index.names(namespace, "non-persistent") == names_in(present, namespace, "non-persistent")
        assert index.user_topic_count(namespace) == sum("/__" not in name for name in stored)
        for pattern in ("", f"{namespace}/a"):
            asked = CommandGetTopicsOfNamespace(request_id=1, namespace=namespace, mode=ALL, topics_pattern=pattern)
            shown = [
                name
                for name in stored + names_in(present, namespace, "non-persistent")
                if "__change" not in name and (not pattern or parse_topic_name(name).base.local == "a")
            ]
            answer = list_answer(index, asked)
            assert (list(answer.topics), answer.topics_hash) == (shown, topics_hash(sorted(shown)))


def test_lists_that_are_kept_are_bounded() -> None:
    index = TopicIndex(lambda: ["persistent://public/wire/a"])
    first = index.list_of("public/wire", (0,), lambda name: True)
    assert index.list_of("public/wire", (0,), lambda name: True) is first
    for number in range(MAX_KEPT_LISTS + 1):
        index.list_of("public/wire", (number + 1,), lambda name: True)
    assert index.list_of("public/wire", (0,), lambda name: True) is not first


async def test_listing_follows_creation_deletion_and_unloading(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        stored, volatile = (
            parse_topic_name(f"{domain}://public/wire/a") for domain in ("persistent", "non-persistent")
        )
        assert broker.topic_names("public/wire") == []
        for name in (stored, volatile):
            await broker.topic(name)
        assert broker.topic_names("public/wire") == [str(stored)]
        assert broker.non_persistent_names("public/wire") == [str(volatile)]
        for name in (stored, volatile):
            await broker.unload_topic(name)
        assert broker.topic_names("public/wire") == [str(stored)]
        assert broker.non_persistent_names("public/wire") == []
        await broker.delete_topic(stored)
        assert broker.topic_names("public/wire") == []


def test_waiting_connections_are_served_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[Any] = []
    now_s = 0.0
    served: list[str] = []

    class Loop:
        call_soon = staticmethod(planned.append)

    monkeypatch.setattr("asyncio.get_running_loop", Loop)
    turns = Turns(lambda: now_s)

    def connection(name: str, slices: int) -> None:
        nonlocal now_s
        served.append(name)
        now_s += SLICE_S
        if slices > 1:
            turns.wait(lambda: connection(name, slices - 1))

    for name in "abcdef":
        turns.wait(lambda name=name: connection(name, 2))  # type: ignore[misc]
    turns_taken = 0
    while planned:
        before_s = now_s
        planned.pop(0)()
        assert now_s - before_s <= TURN_S + SLICE_S
        turns_taken += 1
    assert served == list("abcdefabcdef")
    assert turns_taken == 3


async def test_pipelined_listings_let_others_pass(tmp_path: Path) -> None:
    """One thousand listings of three thousand topics, sent at once: a PING of another client is answered between."""
    async with running_broker(tmp_path) as broker:
        assert broker.topic_names("public/wire") == []
        for number in range(3000):
            broker.topic_index.set_present(f"persistent://public/wire/{'x' * 40}-{number}", True)
        greedy, other = await Raw.connected(broker.port), await Raw.connected(broker.port)
        for number in range(1000):
            greedy.send("GET_TOPICS_OF_NAMESPACE", namespace="public/wire", request_id=number, topics_hash="none")
        first = (await greedy.receive()).command.getTopicsOfNamespaceResponse
        assert (first.request_id, len(first.topics)) == (0, 3000)
        assert await other.barrier() == []
        connection = next(one for one in broker.connections if one._postponed is not None)
        assert connection._postponed is not None
        assert len(connection._postponed._frames) > 0
        for number in range(1, 1000):
            assert (await greedy.receive()).command.getTopicsOfNamespaceResponse.request_id == number
        await greedy.close()
        await other.close()
