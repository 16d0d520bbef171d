"""Invariants of every incarnation of the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from magnetar.broker.dispatch.key_shared import KeySharedDispatcher
from magnetar.wire.pulsar_api_pb2 import CommandSubscribe

from .peer import Peer, PeerConsumer

if TYPE_CHECKING:
    from .incarnation import Incarnation


def check(incarnation: Incarnation) -> None:
    """Check after a step: no client has what the broker took away, and exclusive owners are alone."""
    assert not incarnation.loop.failures, incarnation.loop.failures
    assert any(incarnation.faults) or not incarnation.errors.seen, "\n".join(incarnation.errors.seen)
    by_topic: dict[str, list[Any]] = {}
    for connection in incarnation.broker.connections:
        for producer in connection.producers.values():
            if producer.is_ready:
                by_topic.setdefault(str(producer.topic.name), []).append(producer)
                assert incarnation.broker.topics.get(str(producer.topic.name)) is producer.topic, f"ghost: {producer}"
    for name, producers in by_topic.items():
        owners = [producer for producer in producers if producer.topic.producers.exclusive is producer]
        assert not owners or len(producers) == 1, f"{owners} of {name} is not alone: {producers}"
    for peer in incarnation.peers:
        if not peer.is_gone and not peer.connection.is_closed and not peer.connection._outbox._is_planned:
            for consumer in peer.consumers.values():
                if consumer.state == "attached":
                    _check_attached(incarnation, peer, consumer)


def _check_attached(incarnation: Incarnation, peer: Peer, consumer: PeerConsumer) -> None:
    what = f"{peer}: {consumer} has SUCCESS"
    known = peer.connection.consumers.get(consumer.id)
    assert known is not None, f"{what} and is not there"
    subscription = known.subscription
    assert known in subscription.consumers, f"{what} and is not attached"
    assert not subscription.is_closed, f"{what} on a closed subscription"
    topic = subscription.topic
    assert topic.subscriptions.get(subscription.name) is subscription, f"{what} on a subscription that is gone"
    assert incarnation.broker.topics.get(consumer.topic) is topic, f"{what} on a topic that is not loaded"


def check_settled(incarnation: Incarnation) -> None:
    """Check after all activity has ended: no client is waiting without a reason."""
    assert not incarnation.admin, f"never ended: {list(incarnation.admin.values())}"
    for peer in incarnation.peers:
        if peer.is_gone or peer.connection.is_closed:
            continue
        for request in peer.requests.values():
            assert request.may_wait, f"{peer} waits for the answer to {request}"
        for producer in peer.producers.values():
            if producer.state == "ready":
                assert not producer.sent, f"{peer} waits for {len(producer.sent)} receipts of {producer}"
                if producer.topic not in incarnation.fenced:
                    assert producer.id in peer.connection.producers, f"{peer}: {producer} is not there"
    for topic in incarnation.broker.topics.values():
        assert topic.producers or not topic.producers.waiting, f"{topic} lets {topic.producers.waiting} wait for nobody"
        for subscription in topic.subscriptions.values():
            ready = [each for each in subscription.consumers if each.permits > 0 and not each.is_blocked]
            if ready and (subscription.active_consumer in ready or subscription.kind == CommandSubscribe.Shared):
                left = topic.log.entries_between(subscription.cursor.mark_delete, topic.log.last_confirmed)
                is_done = subscription.read_position > topic.log.last_confirmed and not subscription.replay_entries
                assert is_done or not left, f"{subscription} gives nothing to {ready}"
            if ready and isinstance(subscription.dispatcher, KeySharedDispatcher) and not subscription.is_blocked:
                assert subscription.read_position > topic.log.last_confirmed, f"{subscription} reads nothing new"
                for each in ready:
                    assert not subscription.dispatcher.has_for(each), f"{subscription} gives nothing to {each}"
