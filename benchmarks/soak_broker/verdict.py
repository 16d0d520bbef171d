"""What a soak of the broker has shown: whether every message is settled, nothing is stuck, and memory stays level.

Memory is judged by the medians of two windows, one after the beginning, in which caches fill, and one at the end.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ..soak.minutes import Life, Minute
from ..soak.report import Verdict
from .account import Account, Faults
from .topics import Source

MEMORY_GROWTH = 0.10
MEMORY_JUDGED_S = 300.0
WARM_SHARE = 0.2
"""Of the time, before the first window."""
WINDOW_SHARE = 0.2
EXAMPLES = 3


@dataclass(frozen=True)
class State:
    """What the broker says of a subscription in the end.

    Attributes:
        name: topic and subscription.
        backlog: messages that are not acknowledged.
        unacknowledged: of these, messages that consumers hold.
        consumers: that there are.
        consumers_expected: that there should be.
    """

    name: str
    backlog: int
    unacknowledged: int
    consumers: int
    consumers_expected: int

    @property
    def is_clear(self) -> bool:
        """Whether everything is acknowledged, and every consumer there."""
        return not self.backlog and not self.unacknowledged and self.consumers == self.consumers_expected


@dataclass(frozen=True)
class Events:
    """What happened beside the messages.

    Attributes:
        joins: consumers that came.
        lives: topics that were made and deleted.
        unloads: of topics.
        settled_s: seconds from the last message to the last acknowledgement.
    """

    joins: int
    lives: int
    unloads: int
    settled_s: float


@dataclass(frozen=True)
class Outcome:
    """Everything that is judged.

    Attributes:
        sources: of all topics.
        accounts: of all subscriptions.
        faults: that were noticed on the way.
        states: of the persistent subscriptions.
        events: that were counted.
        minutes: in order.
        lives: of all processes.
    """

    sources: Sequence[Source]
    accounts: Sequence[Account]
    faults: Faults
    states: Sequence[State]
    events: Events
    minutes: Sequence[Minute]
    lives: Sequence[Life]


def judge(outcome: Outcome) -> Verdict:
    """Return what was met and missed."""
    verdict = Verdict()
    published = sum(sum(source.published) for source in outcome.sources)
    official = sum(sum(source.published) for source in outcome.sources if source.topic.is_official)
    events = outcome.events
    verdict.notes.append(
        f"{published:,} messages were published ({official / max(1, published):.0%} by the official client) to "
        f"{len(outcome.sources)} topics, {events.joins:,} consumers came, {events.unloads:,} times a topic was unloaded"
    )
    _judge_accounts(outcome, verdict)
    unclear = [state for state in outcome.states if not state.is_clear]
    said = f"{len(outcome.states):,} without backlog, with all their consumers"
    if unclear:
        said = f"{len(unclear):,} of {len(outcome.states):,} are not clear: {_examples(unclear)}"
    verdict.compare("subscriptions", said, not unclear)
    verdict.compare("topics made and deleted", f"{events.lives:,}", events.lives > 0)
    for kind, said in outcome.faults.lines():
        verdict.compare(kind, said, is_met=False)
    for life in outcome.lives:
        judge_memory(life, verdict)
    return verdict


def _judge_accounts(outcome: Outcome, verdict: Verdict) -> None:
    published = {source.topic: sum(source.published) for source in outcome.sources}
    lacks = [(account, published[account.topic] - account.settled()) for account in outcome.accounts]
    lacking = [f"{account} lacks {count:,}" for account, count in lacks if count]
    settled = sum(account.settled() for account in outcome.accounts)
    dead = sum(account.dead for account in outcome.accounts)
    again = sum(account.again for account in outcome.accounts)
    said = (
        f"all {settled:,} settled {outcome.events.settled_s:.0f} s after the last was published, {dead:,} of them as "
        f"dead letters; {again:,} came again after that"
    )
    if lacking:
        said = f"{len(lacking):,} of {len(lacks):,} subscriptions lack some: {_examples(lacking)}"
    verdict.compare("messages", said, not lacking)
    failing = sum(source.failing for source in outcome.sources)
    verdict.compare("dead letters", f"{dead:,}, and {failing:,} messages that all consumers rejected", dead == failing)


def judge_memory(life: Life, verdict: Verdict) -> None:
    """Compare the memory of a process at the end with that after it had begun."""
    began, ended = life.looks[0][0], life.looks[-1][0]
    seconds = ended - began
    name = f"memory of the {life.kind}"
    if seconds < MEMORY_JUDGED_S:
        verdict.notes.append(f"{name}: not judged, that takes {MEMORY_JUDGED_S:g} s")
        return
    first = began + WARM_SHARE * seconds
    windows = ((first, first + WINDOW_SHARE * seconds), (ended - WINDOW_SHARE * seconds, ended))
    before, after = (
        statistics.median(mib for age_s, mib in life.looks if begin <= age_s <= end) for begin, end in windows
    )
    said = f"{before:.1f} MiB at the beginning, {after:.1f} MiB at the end ({after / before - 1:+.1%})"
    verdict.compare(name, said, after <= before * (1 + MEMORY_GROWTH))


def _examples(wrong: Sequence[object]) -> str:
    return ", ".join(map(str, wrong[:EXAMPLES]))
