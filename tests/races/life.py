"""One life of a broker under a seeded schedule, from its start to a crash.

Each step of the schedule is one of: run the next callback of the loop; let the disk, the metadata store or a peer's
bytes come on by one piece; let time pass to the next timer; have a client or an administrator do something. Which of
them are likely is drawn anew for each life, so that some lives hold the disk for long, others the metadata store.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import random
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from magnetar.broker.config import BrokerConfig
from magnetar.broker.namespaces import Namespaces
from magnetar.broker.policies import default_policies
from magnetar.broker.service import BrokerService
from magnetar.broker.storage.config import StorageConfig
from magnetar.broker.storage.simulated_disk import SimulatedDisk
from magnetar.broker.storage.store import Storage
from magnetar.errors import MagnetarError
from magnetar.metadata.store import Record
from magnetar.wire.pulsar_api_pb2 import CommandSubscribe, ProducerAccessMode
from magnetar.wire.topic_name import parse_topic_name

from .facts import Facts
from .gates import HeldLanes, HeldStore
from .loop import SteppedLoop
from .peer import Peer, PeerConsumer, PeerProducer

DIRECTORY = "/data"
NAMESPACE = "public/races"
TOPICS = tuple(f"persistent://{NAMESPACE}/t{number}" for number in range(2))
SUBSCRIPTIONS = ("s0", "s1")
STORAGE = StorageConfig(
    journal_file_bytes=64 * 1024,
    group_bytes=8 * 1024,
    checkpoint_bytes=64 * 1024,
    checkpoint_interval_s=1.0,
    max_ledger_entries=4,
    tail_cache_bytes=200,
    read_cache_bytes=1000,
)
MAX_PEERS = 3
MAX_STEPS = 200_000
SETTLING_S = 45.0
"""Longer than the slowest answer takes: a few checks of a peer's liveness, one after the other."""
MODES = (
    ProducerAccessMode.Shared,
    ProducerAccessMode.Exclusive,
    ProducerAccessMode.WaitForExclusive,
    ProducerAccessMode.ExclusiveWithFencing,
)
KINDS = (CommandSubscribe.Exclusive, CommandSubscribe.Shared, CommandSubscribe.Failover)


class _Errors(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(self.format(record))


class Faults(NamedTuple):
    """What fails in a life, beside its end."""

    metadata: bool = False
    disk: bool = False


class Life:
    """A broker from start to crash.

    Args:
        rng: draws the schedule.
        disk: where the storage is.
        records: what the metadata store holds.
        facts: what clients were promised, by topic; goes on from life to life.
        faults: whether the metadata store and the disk fail now and then.
    """

    def __init__(
        self,
        rng: random.Random,
        disk: SimulatedDisk,
        records: dict[str, Record],
        facts: dict[str, Facts],
        faults: Faults,
    ) -> None:
        self.rng = rng
        self.facts = facts
        self.trace: deque[str] = deque(maxlen=4000)
        self.steps = 0
        self.peers: list[Peer] = []
        self.fenced: set[str] = set()
        self.admin: dict[asyncio.Task[Any], str] = {}
        self._number = 0
        self.loop = SteppedLoop()
        self.store = HeldStore(self.loop, records)
        self.storage = Storage.open(DIRECTORY, STORAGE, disk, self.now_s, random.Random(rng.random()))
        journal = self.storage._core.journal
        self.lanes = HeldLanes(self.loop, journal.hand_over, journal.write_turn)
        self.storage._use(self.lanes)
        namespaces = Namespaces(self.store)
        self._run(namespaces.start())
        if not namespaces.has_namespace(NAMESPACE):
            kept = {"retention_policies": {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}}
            self._run(namespaces.create_namespace(NAMESPACE, default_policies("standalone") | kept))
        self.broker = BrokerService(
            BrokerConfig(broker_port=0, failover_delay_s=0.05), self.storage, namespaces, self.now_s
        )
        self._run(self.broker.start())
        self._weights = {name: rng.choice((0.05, 0.3, 1.0, 3.0)) for name in self._gates()}
        self._actions = [(action, rng.choice((0.2, 1.0, 3.0))) for action in self._all_actions()]
        self._action_weight = rng.choice((0.03, 0.1, 0.5))
        self._timer_weight = rng.choice((0.0, 0.0, 0.01, 0.1))
        self._errors = _Errors()
        self._faults = faults
        self._disk = disk
        if faults.metadata:
            self.store.fails = lambda: rng.random() < 0.1
        logging.getLogger("magnetar").addHandler(self._errors)

    def now_s(self) -> float:
        return 1_700_000_000.0 + self.loop.time()

    def now_ms(self) -> int:
        return int(self.now_s() * 1000)

    def note(self, text: str) -> None:
        self.trace.append(f"{self.steps:6} {text}")

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine with everything released."""
        task = self.loop.create_task(work)
        while not task.done():
            if self.loop.is_ready:
                self.loop.step()
            elif (release := self._any_gate()) is not None:
                release()
            else:
                self.loop.advance()
        return task.result()

    # The schedule

    def _gates(self) -> dict[str, Callable[[], None] | None]:
        lanes = self.lanes
        return {
            "journal": lanes.write if lanes.wakes else None,
            "background": self._work if lanes.background else None,
            "read": self._read if lanes.reads else None,
            "metadata": self.store.release if self.store.queue else None,
            "bytes": self._deliver if any(peer.can_deliver for peer in self.peers) else None,
        }

    def _any_gate(self) -> Callable[[], None] | None:
        return next((release for release in self._gates().values() if release is not None), None)

    def _work(self) -> None:
        self.lanes.background.popleft()()

    def _read(self) -> None:
        self.lanes.reads.popleft()()

    def _deliver(self) -> None:
        peer = self.rng.choice([peer for peer in self.peers if peer.can_deliver])
        peer.deliver(self.rng.choice((1, 1, 2, 5)))

    def live(self, actions: int) -> None:
        """Take steps until so many actions were begun."""
        while actions:
            choices: list[tuple[str, Callable[[], None], float]] = [
                (name, release, self._weights[name]) for name, release in self._gates().items() if release is not None
            ]
            choices.append(("action", self._act, self._action_weight))
            if self.loop.is_ready:
                choices.append(("", self.loop.step, 3.0))
            if self.loop.next_timer_s is not None:
                choices.append(("time", self.loop.advance, self._timer_weight))
            name, do, _ = self.rng.choices(choices, [weight for _, _, weight in choices])[0]
            actions -= name == "action"
            self._step(name, do)

    def settle(self) -> None:
        """Release everything, then let time pass, until nothing happens any more."""
        self.store.fails = None
        self._disk.failures.clear()
        until_s = self.loop.time() + SETTLING_S
        while True:
            if self.loop.is_ready:
                self._step("", self.loop.step)
            elif (release := self._any_gate()) is not None:
                self._step("release", release)
            elif (due_s := self.loop.next_timer_s) is not None and due_s <= until_s:
                self._step("time", self.loop.advance)
            else:
                return

    def hold(self, *held: str) -> None:
        """Release everything but these gates, without letting time pass, until nothing happens any more."""
        while True:
            gates = [(name, release) for name, release in self._gates().items() if release is not None]
            free = [release for name, release in gates if name not in held]
            if self.loop.is_ready:
                self._step("", self.loop.step)
            elif free:
                self._step("release", free[0])
            else:
                return

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Begin something; it goes on with the steps."""
        return self.loop.create_task(work)

    def stop(self) -> None:
        """Stop the broker as a signal does, whatever is under way."""
        self.note("stop")
        self._run(self.broker.stop())
        assert not self.broker.tasks, f"{self.broker.tasks} still run"
        self.check()

    def _step(self, name: str, do: Callable[[], None]) -> None:
        self.steps += 1
        assert self.steps < MAX_STEPS, "the schedule does not come to an end"
        if name and name != "action":
            self.note(name)
        do()
        for task, what in list(self.admin.items()):
            if task.done():
                del self.admin[task]
                self._ended(task, what)
        self.check()

    def _ended(self, task: asyncio.Task[Any], what: str) -> None:
        error = task.exception()
        self.note(f"{what} ended: {error!r}")
        assert error is None or isinstance(error, MagnetarError), f"{what} ended by {error!r}"

    # What clients and administrators do

    def _act(self) -> None:
        action = self.rng.choices([action for action, _ in self._actions], [weight for _, weight in self._actions])[0]
        action()

    def _all_actions(self) -> list[Callable[[], None]]:
        return [
            self._connect, self._produce, self._send, self._send, self._close_producer, self._subscribe,
            self._acknowledge, self._close_consumer, self._unsubscribe, self._seek, self._last, self._leave,
            self._unload, self._delete, self._create, self._create_subscription, self._delete_subscription,
            self._deduplicate, self._compact, self._checkpoint, self._terminate, self._trim, self._break_disk,
        ]  # fmt: skip

    def _peer(self) -> Peer:
        self.peers = [peer for peer in self.peers if not peer.is_gone]
        if not self.peers or (len(self.peers) < MAX_PEERS and self.rng.random() < 0.3):
            self._number += 1
            self.peers.append(Peer(self, self._number, is_deaf=self.rng.random() < 0.2))
        return self.rng.choice(self.peers)

    def _connect(self) -> None:
        self.note(f"{self._peer()!r}")

    def _topic(self) -> str:
        return self.rng.choice(TOPICS)

    def _produce(self) -> None:
        peer, topic, mode = self._peer(), self._topic(), self.rng.choice(MODES)
        name = self.rng.choice(("", "", "p", "q"))
        if mode == ProducerAccessMode.ExclusiveWithFencing:
            self.fenced.add(topic)
        self.note(f"{peer}: producer {name} on {topic} {ProducerAccessMode.Name(mode)}")
        peer.create_producer(topic, mode, name)

    def _producer(self) -> tuple[Peer, PeerProducer] | None:
        ready = [
            (p, each) for p in self.peers if not p.is_gone for each in p.producers.values() if each.state == "ready"
        ]
        return self.rng.choice(ready) if ready else None

    def _send(self) -> None:
        if (found := self._producer()) is not None:
            for _ in range(self.rng.choice((1, 3))):
                found[0].send(found[1])
            self.note(f"{found[0]}: send {found[1]}")

    def _close_producer(self) -> None:
        if (found := self._producer()) is not None:
            self.note(f"{found[0]}: close {found[1]}")
            found[0].close_producer(found[1])

    def _subscribe(self) -> None:
        peer, topic, name = self._peer(), self._topic(), self.rng.choice(SUBSCRIPTIONS)
        kind, is_durable = self.rng.choice(KINDS), self.rng.random() < 0.8
        self.note(f"{peer}: subscribe {topic} {name} {kind} durable={is_durable}")
        peer.subscribe(topic, name if is_durable else f"{name}-reader", kind, is_durable=is_durable)

    def _consumer(self) -> tuple[Peer, PeerConsumer] | None:
        there = [
            (p, each) for p in self.peers if not p.is_gone for each in p.consumers.values() if each.state == "attached"
        ]
        return self.rng.choice(there) if there else None

    def _acknowledge(self) -> None:
        if (found := self._consumer()) is not None and found[1].got:
            found[0].acknowledge(found[1], self.rng.choice(found[1].got))

    def _close_consumer(self) -> None:
        if (found := self._consumer()) is not None:
            self.note(f"{found[0]}: close {found[1]}")
            found[0].close_consumer(found[1])

    def _unsubscribe(self) -> None:
        if (found := self._consumer()) is not None:
            self.note(f"{found[0]}: unsubscribe {found[1]}")
            found[0].unsubscribe(found[1])

    def _seek(self) -> None:
        if (found := self._consumer()) is not None:
            self.note(f"{found[0]}: seek {found[1]}")
            found[0].seek(found[1])

    def _last(self) -> None:
        if (found := self._consumer()) is not None:
            found[0].ask_last(found[1])

    def _leave(self) -> None:
        if self.peers and self.rng.random() < 0.3:
            peer = self.rng.choice(self.peers)
            self.note(f"{peer}: leaves")
            peer.leave()

    def _start(self, what: str, work: Coroutine[Any, Any, Any]) -> None:
        self.note(what)
        self.admin[self.loop.create_task(work)] = what

    def _unload(self) -> None:
        topic = self._topic()
        self._start(f"unload {topic}", self.broker.unload_topic(parse_topic_name(topic)))

    def _delete(self) -> None:
        topic, force = self._topic(), self.rng.random() < 0.7
        self._start(f"delete {topic} force={force}", self._deleted(topic, force))

    async def _deleted(self, topic: str, force: bool) -> None:
        facts = self.facts[topic]
        ledgers = facts.topic_may_go()
        is_deleted = False
        try:
            await self.broker.delete_topic(parse_topic_name(topic), force)
            is_deleted = True
        finally:
            facts.topic_answered(ledgers, is_deleted=is_deleted)

    def _create(self) -> None:
        topic = self._topic()
        self._start(f"create {topic}", self._created(topic))

    async def _created(self, topic: str) -> None:
        facts = self.facts[topic]
        before = facts.removals
        await self.broker.create_topic(parse_topic_name(topic))
        facts.is_there = facts.is_there or (not facts.under_deletion and before == facts.removals)

    def _create_subscription(self) -> None:
        topic, name = self._topic(), self.rng.choice(SUBSCRIPTIONS)
        self._start(f"create subscription {name} on {topic}", self._created_subscription(topic, name))

    async def _created_subscription(self, topic: str, name: str) -> None:
        before = self.facts[topic].removals
        loaded = await self.broker.topic(parse_topic_name(topic))
        await loaded.create_subscription(name, "earliest")
        if before == self.facts[topic].removals:
            self.facts[topic].subscribed(name)

    def _delete_subscription(self) -> None:
        topic, name = self._topic(), self.rng.choice(SUBSCRIPTIONS)
        force = self.rng.random() < 0.5
        self._start(f"delete subscription {name} on {topic}", self._deleted_subscription(topic, name, force))

    async def _deleted_subscription(self, topic: str, name: str, force: bool) -> None:
        facts = self.facts[topic]
        facts.subscription_may_go(name)
        try:
            loaded = await self.broker.topic(parse_topic_name(topic), create=False)
            await loaded.delete_subscription(name, force)
        finally:
            facts.subscription_answered(name)

    def _deduplicate(self) -> None:
        topic, is_on = self._topic(), self.rng.random() < 0.5
        self._start(f"deduplication of {topic} {is_on}", self._deduplicated(topic, is_on))

    async def _deduplicated(self, topic: str, is_on: bool) -> None:
        await self.broker.namespaces.change_topic_policies(
            parse_topic_name(topic), lambda policies: policies | {"deduplicationEnabled": is_on}
        )
        await self.broker.adjust_deduplication(self.broker.topics.values())

    def _compact(self) -> None:
        topic = self.broker.topics.get(self._topic())
        if topic is not None and not topic.compaction.is_running:
            self.note(f"compact {topic}")
            topic.begin_compaction()

    def _checkpoint(self) -> None:
        self.note("checkpoint")
        self.storage.maintain()

    def _terminate(self) -> None:
        topic = self.broker.topics.get(self._topic())
        if topic is not None and self.rng.random() < 0.1:
            self._start(f"terminate {topic.name}", topic.terminate())

    def _trim(self) -> None:
        self._start("trim", self.broker.trim_topics())

    def _break_disk(self) -> None:
        if self._faults.disk and self.rng.random() < 0.3:
            number = self._disk.operations + self.rng.randrange(1, 10)
            self._disk.failures[number] = self.rng.choice((errno.EIO, errno.ENOSPC))

    # What must hold

    def check(self) -> None:
        """After each step: nobody has what the broker took away, and an owner is alone."""
        assert not self.loop.failures, self.loop.failures
        assert any(self._faults) or not self._errors.seen, "\n".join(self._errors.seen)
        by_topic: dict[str, list[Any]] = {}
        for connection in self.broker.connections:
            for producer in connection.producers.values():
                if producer.is_ready:
                    by_topic.setdefault(str(producer.topic.name), []).append(producer)
                    assert self.broker.topics.get(str(producer.topic.name)) is producer.topic, f"ghost: {producer}"
        for name, producers in by_topic.items():
            owners = [producer for producer in producers if producer.topic.exclusive is producer]
            assert not owners or len(producers) == 1, f"{owners} of {name} is not alone: {producers}"
        for peer in self.peers:
            if not peer.is_gone and not peer.connection.is_closed and not peer.connection._is_flush_planned:
                for consumer in peer.consumers.values():
                    if consumer.state == "attached":
                        self._check_attached(peer, consumer)

    def _check_attached(self, peer: Peer, consumer: PeerConsumer) -> None:
        what = f"{peer}: {consumer} has SUCCESS"
        known = peer.connection.consumers.get(consumer.id)
        assert known is not None, f"{what} and is not there"
        subscription = known.subscription
        assert known in subscription.consumers, f"{what} and is not attached"
        assert not subscription.is_closed, f"{what} on a closed subscription"
        topic = subscription.topic
        assert topic.subscriptions.get(subscription.name) is subscription, f"{what} on a subscription that is gone"
        assert self.broker.topics.get(consumer.topic) is topic, f"{what} on a topic that is not loaded"

    def check_settled(self) -> None:
        """Once nothing happens any more: nobody waits without a reason."""
        assert not self.admin, f"never ended: {list(self.admin.values())}"
        for peer in self.peers:
            if peer.is_gone or peer.connection.is_closed:
                continue
            for request in peer.requests.values():
                assert request.may_wait, f"{peer} waits for the answer to {request}"
            for producer in peer.producers.values():
                if producer.state == "ready":
                    assert not producer.sent, f"{peer} waits for {len(producer.sent)} receipts of {producer}"
                    if producer.topic not in self.fenced:
                        assert producer.id in peer.connection.producers, f"{peer}: {producer} is not there"
        for topic in self.broker.topics.values():
            assert topic.producers or not topic.waiting, f"{topic} lets {topic.waiting} wait for nobody"
            for subscription in topic.subscriptions.values():
                ready = [each for each in subscription.consumers if each.permits > 0 and not each.is_blocked]
                if ready and (subscription.active_consumer in ready or subscription.kind == CommandSubscribe.Shared):
                    left = topic.log.entries_between(subscription.cursor.mark_delete, topic.log.last_confirmed)
                    is_done = subscription.read_position > topic.log.last_confirmed and not subscription.replay_entries
                    assert is_done or not left, f"{subscription} gives nothing to {ready}"

    def end(self) -> None:
        """Stop without any goodbye."""
        logging.getLogger("magnetar").removeHandler(self._errors)
        for peer in self.peers:
            peer.forget()
        self.loop.end()
