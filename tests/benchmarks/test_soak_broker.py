"""What a soak of the broker counts and says: `benchmarks/soak_broker`."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from benchmarks.soak.minutes import Life
from benchmarks.soak_broker.account import Account, Faults
from benchmarks.soak_broker.topics import Body, Source, Subscription, Topic, body_of, topics
from benchmarks.soak_broker.verdict import Events, Outcome, State, judge

ORDERED = Topic(0, (Subscription("Key_Shared", 2),), keys=2)
FAILING = Topic(1, (Subscription("Shared", 2),), keys=2, is_delaying=True, is_failing=True)
CLEAR = State("soak-0 key_shared", 0, 0, 2, 2)


def outcome(**changed: object) -> Outcome:
    """Two topics with three messages each, one of which fails; everything settled."""
    faults = Faults()
    sources = [Source(topic, random.Random(0)) for topic in (ORDERED, FAILING)]
    accounts = [Account(topic, topic.subscriptions[0], faults) for topic in (ORDERED, FAILING)]
    for source, account in zip(sources, accounts, strict=True):
        source.published[:] = [2, 1]
        for key, number in ((0, 0), (1, 0), (0, 1)):
            fails = source.topic is FAILING and number == 1
            source.failing += fails
            settle = account.bury if fails else account.acknowledge
            settle(Body(key, number, fails=fails))
    level = Life("broker", [(float(second), 60.0) for second in range(600)])
    full = Outcome(sources, accounts, faults, [CLEAR], Events(9, 3, 1, 2.0), [], [level])
    return replace(full, **changed)  # type: ignore[arg-type]


def test_nothing_is_missed_when_all_is_settled() -> None:
    verdict = judge(outcome())
    assert verdict.missed == []
    assert any(note.startswith("memory of the broker: 60.0 MiB") for note in verdict.notes)


def lose(found: Outcome) -> None:
    found.sources[0].published[1] += 1


def lose_letter(found: Outcome) -> None:
    found.sources[1].failing += 1


def skip(found: Outcome) -> None:
    found.sources[0].published[0] += 2
    for number in (3, 2):
        found.accounts[0].acknowledge(Body(0, number))


def come_early(found: Outcome) -> None:
    assert found.accounts[1].is_accepted(Body(0, 0, due_ms=1000), 999.0)


def bury_good(found: Outcome) -> None:
    found.sources[1].published[0] += 1
    found.accounts[1].bury(Body(0, 2))


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lose, "messages: 1 of 2 subscriptions lack some: persistent://public/default/soak-0 key_shared lacks 1"),
        (lose_letter, "dead letters: 1, and 2 messages that all consumers rejected"),
        (skip, "order of a key broken: 1 times: persistent://public/default/soak-0 key_shared: message 3 of key 0"),
        (come_early, "delivered before its time: 1 times: "),
        (bury_good, "dead letter that was accepted: 1 times: "),
    ],
)
def test_each_wrong_count_is_missed(change: Callable[[Outcome], None], cause: str) -> None:
    found = outcome()
    change(found)
    assert any(line.startswith(cause) for line in judge(found).missed), judge(found)


@pytest.mark.parametrize(
    "unclear", [replace(CLEAR, backlog=1), replace(CLEAR, unacknowledged=1), replace(CLEAR, consumers=1)]
)
def test_a_subscription_that_the_broker_says_is_not_clear_is_missed(unclear: State) -> None:
    (missed,) = judge(outcome(states=[CLEAR, unclear])).missed
    assert missed.startswith("subscriptions: 1 of 2 have a backlog or missing consumers: ")


@pytest.mark.parametrize(("growth_mib", "is_missed"), [(5.0, False), (14.0, True)])
def test_memory_that_grows_is_missed_by_name(growth_mib: float, is_missed: bool) -> None:
    growing = Life("clients", [(float(second), 60.0 + growth_mib * second / 600) for second in range(600)])
    missed = judge(outcome(lives=[growing])).missed
    assert [line.partition(":")[0] for line in missed] == ["memory of the clients"] * is_missed


def test_the_memory_of_a_short_soak_is_not_judged() -> None:
    short = Life("broker", [(float(second), float(second)) for second in range(100)])
    assert judge(outcome(lives=[short])).missed == []


def test_a_message_that_comes_again_counts_once() -> None:
    account = Account(ORDERED, ORDERED.subscriptions[0], Faults())
    for number in (0, 1, 0, 1, 2):
        account.acknowledge(Body(0, number))
    assert (account.settled(), account.again) == (3, 2)


def test_there_are_400_consumers_of_all_types_on_200_topics() -> None:
    plan = topics()
    consumers: Counter[str] = Counter()
    for topic in plan:
        for subscription in topic.subscriptions:
            consumers[subscription.type] += subscription.consumers
    assert len({topic.name for topic in plan}) == 200
    assert consumers == {"Exclusive": 100, "Failover": 100, "Shared": 100, "Key_Shared": 100}


def test_messages_are_numbered_by_key_and_repeat_with_the_seed() -> None:
    source, again = (Source(FAILING, random.Random(7)) for _ in range(2))
    bodies = [source.next(1000) for _ in range(500)]
    assert bodies == [again.next(1000) for _ in range(500)]
    assert [body_of(body.encode()) for body in bodies] == bodies
    for key in range(FAILING.keys):
        numbers = [body.number for body in bodies if body.key == key]
        assert numbers == list(range(source.published[key]))
    assert source.failing == sum(body.fails for body in bodies) > 0
    assert {body.due_ms > 1000 for body in bodies} == {True, False}
