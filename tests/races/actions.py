"""Random actions of clients and administrators during one incarnation of the broker."""

from __future__ import annotations

import errno
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from magnetar.wire.pulsar_api_pb2 import CommandSubscribe, ProducerAccessMode
from magnetar.wire.topic_name import parse_topic_name

from .peer import Peer, PeerConsumer, PeerProducer

if TYPE_CHECKING:
    from .incarnation import Incarnation

NAMESPACE = "public/races"
TOPICS = tuple(f"persistent://{NAMESPACE}/t{number}" for number in range(2))
SUBSCRIPTIONS = ("s0", "s1")
MAX_PEERS = 3
MODES = (
    ProducerAccessMode.Shared,
    ProducerAccessMode.Exclusive,
    ProducerAccessMode.WaitForExclusive,
    ProducerAccessMode.ExclusiveWithFencing,
)
KINDS = (
    CommandSubscribe.Exclusive, CommandSubscribe.Shared, CommandSubscribe.Failover, CommandSubscribe.Key_Shared
)  # fmt: skip


class Actions:
    """The actions of one incarnation, with random probabilities."""

    def __init__(self, incarnation: Incarnation) -> None:
        self._incarnation = incarnation
        self._number = 0
        self._actions = [(action, incarnation.rng.choice((0.2, 1.0, 3.0))) for action in self._all_actions()]

    def act(self) -> None:
        """Perform one action."""
        action = self._incarnation.rng.choices(
            [action for action, _ in self._actions], [weight for _, weight in self._actions]
        )[0]
        action()

    def _all_actions(self) -> list[Callable[[], None]]:
        return [
            self._connect, self._produce, self._send, self._send, self._close_producer, self._subscribe,
            self._acknowledge, self._close_consumer, self._unsubscribe, self._seek, self._last, self._leave,
            self._unload, self._delete, self._create, self._create_subscription, self._delete_subscription,
            self._deduplicate, self._compact, self._checkpoint, self._terminate, self._trim, self._break_disk,
        ]  # fmt: skip

    def _peer(self) -> Peer:
        self._incarnation.peers = [peer for peer in self._incarnation.peers if not peer.is_gone]
        if not self._incarnation.peers or (
            len(self._incarnation.peers) < MAX_PEERS and self._incarnation.rng.random() < 0.3
        ):
            self._number += 1
            self._incarnation.peers.append(
                Peer(self._incarnation, self._number, is_deaf=self._incarnation.rng.random() < 0.2)
            )
        return self._incarnation.rng.choice(self._incarnation.peers)

    def _connect(self) -> None:
        self._incarnation.note(f"{self._peer()!r}")

    def _topic(self) -> str:
        return self._incarnation.rng.choice(TOPICS)

    def _produce(self) -> None:
        peer, topic, mode = self._peer(), self._topic(), self._incarnation.rng.choice(MODES)
        name = self._incarnation.rng.choice(("", "", "p", "q"))
        if mode == ProducerAccessMode.ExclusiveWithFencing:
            self._incarnation.fenced.add(topic)
        self._incarnation.note(f"{peer}: producer {name} on {topic} {ProducerAccessMode.Name(mode)}")
        peer.create_producer(topic, mode, name)

    def _producer(self) -> tuple[Peer, PeerProducer] | None:
        ready = [
            (p, each)
            for p in self._incarnation.peers
            if not p.is_gone
            for each in p.producers.values()
            if each.state == "ready"
        ]
        return self._incarnation.rng.choice(ready) if ready else None

    def _send(self) -> None:
        if (found := self._producer()) is not None:
            for _ in range(self._incarnation.rng.choice((1, 3))):
                found[0].send(found[1])
            self._incarnation.note(f"{found[0]}: send {found[1]}")

    def _close_producer(self) -> None:
        if (found := self._producer()) is not None:
            self._incarnation.note(f"{found[0]}: close {found[1]}")
            found[0].close_producer(found[1])

    def _subscribe(self) -> None:
        peer, topic, name = self._peer(), self._topic(), self._incarnation.rng.choice(SUBSCRIPTIONS)
        kind, is_durable = self._incarnation.rng.choice(KINDS), self._incarnation.rng.random() < 0.8
        self._incarnation.note(f"{peer}: subscribe {topic} {name} {kind} durable={is_durable}")
        peer.subscribe(topic, name if is_durable else f"{name}-reader", kind, is_durable=is_durable)

    def _consumer(self) -> tuple[Peer, PeerConsumer] | None:
        there = [
            (p, each)
            for p in self._incarnation.peers
            if not p.is_gone
            for each in p.consumers.values()
            if each.state == "attached"
        ]
        return self._incarnation.rng.choice(there) if there else None

    def _acknowledge(self) -> None:
        if (found := self._consumer()) is not None and found[1].got:
            found[0].acknowledge(found[1], self._incarnation.rng.choice(found[1].got))

    def _close_consumer(self) -> None:
        if (found := self._consumer()) is not None:
            self._incarnation.note(f"{found[0]}: close {found[1]}")
            found[0].close_consumer(found[1])

    def _unsubscribe(self) -> None:
        if (found := self._consumer()) is not None:
            self._incarnation.note(f"{found[0]}: unsubscribe {found[1]}")
            found[0].unsubscribe(found[1])

    def _seek(self) -> None:
        if (found := self._consumer()) is not None:
            self._incarnation.note(f"{found[0]}: seek {found[1]}")
            found[0].seek(found[1])

    def _last(self) -> None:
        if (found := self._consumer()) is not None:
            found[0].ask_last(found[1])

    def _leave(self) -> None:
        if self._incarnation.peers and self._incarnation.rng.random() < 0.3:
            peer = self._incarnation.rng.choice(self._incarnation.peers)
            self._incarnation.note(f"{peer}: leaves")
            peer.leave()

    def _start(self, what: str, work: Coroutine[Any, Any, Any]) -> None:
        self._incarnation.note(what)
        self._incarnation.admin[self._incarnation.loop.create_task(work)] = what

    def _unload(self) -> None:
        topic = self._topic()
        self._start(f"unload {topic}", self._incarnation.broker.unload_topic(parse_topic_name(topic)))

    def _delete(self) -> None:
        topic, force = self._topic(), self._incarnation.rng.random() < 0.7
        self._start(f"delete {topic} force={force}", self._deleted(topic, force))

    async def _deleted(self, topic: str, force: bool) -> None:
        facts = self._incarnation.facts[topic]
        ledgers = facts.topic_may_go()
        is_deleted = False
        try:
            await self._incarnation.broker.delete_topic(parse_topic_name(topic), force)
            is_deleted = True
        finally:
            facts.topic_answered(ledgers, is_deleted=is_deleted)

    def _create(self) -> None:
        topic = self._topic()
        self._start(f"create {topic}", self._created(topic))

    async def _created(self, topic: str) -> None:
        facts = self._incarnation.facts[topic]
        before = facts.removals
        await self._incarnation.broker.create_topic(parse_topic_name(topic))
        facts.is_there = facts.is_there or (not facts.under_deletion and before == facts.removals)

    def _create_subscription(self) -> None:
        topic, name = self._topic(), self._incarnation.rng.choice(SUBSCRIPTIONS)
        self._start(f"create subscription {name} on {topic}", self._created_subscription(topic, name))

    async def _created_subscription(self, topic: str, name: str) -> None:
        before = self._incarnation.facts[topic].removals
        loaded = await self._incarnation.broker.topic(parse_topic_name(topic))
        await loaded.create_subscription(name, "earliest")
        if before == self._incarnation.facts[topic].removals:
            self._incarnation.facts[topic].subscribed(name)

    def _delete_subscription(self) -> None:
        topic, name = self._topic(), self._incarnation.rng.choice(SUBSCRIPTIONS)
        force = self._incarnation.rng.random() < 0.5
        self._start(f"delete subscription {name} on {topic}", self._deleted_subscription(topic, name, force))

    async def _deleted_subscription(self, topic: str, name: str, force: bool) -> None:
        facts = self._incarnation.facts[topic]
        facts.subscription_may_go(name)
        try:
            loaded = await self._incarnation.broker.topic(parse_topic_name(topic), create=False)
            await loaded.delete_subscription(name, force)
        finally:
            facts.subscription_answered(name)

    def _deduplicate(self) -> None:
        topic, is_on = self._topic(), self._incarnation.rng.random() < 0.5
        self._start(f"deduplication of {topic} {is_on}", self._deduplicated(topic, is_on))

    async def _deduplicated(self, topic: str, is_on: bool) -> None:
        await self._incarnation.broker.namespaces.change_topic_policies(
            parse_topic_name(topic), lambda policies: policies | {"deduplicationEnabled": is_on}
        )
        await self._incarnation.broker.adjust_deduplication(self._incarnation.broker.topics.values())

    def _compact(self) -> None:
        topic = self._incarnation.broker.topics.get(self._topic())
        if topic is not None and not topic.compaction.is_running:
            self._incarnation.note(f"compact {topic}")
            topic.begin_compaction()

    def _checkpoint(self) -> None:
        self._incarnation.note("checkpoint")
        self._incarnation.storage.maintain()

    def _terminate(self) -> None:
        topic = self._incarnation.broker.topics.get(self._topic())
        if topic is not None and self._incarnation.rng.random() < 0.1:
            self._start(f"terminate {topic.name}", topic.terminate())

    def _trim(self) -> None:
        self._start("trim", self._incarnation.broker.trim_topics())

    def _break_disk(self) -> None:
        if self._incarnation.faults.disk and self._incarnation.rng.random() < 0.3:
            number = self._incarnation.disk.operations + self._incarnation.rng.randrange(1, 10)
            self._incarnation.disk.failures[number] = self._incarnation.rng.choice((errno.EIO, errno.ENOSPC))
