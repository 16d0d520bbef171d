"""The verdict of a broker soak: whether all messages are settled, nothing is stuck, and memory is constant.

Memory is checked by comparing the medians of two windows, one after the start, when caches fill, and one at the end.
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
"""Share of the time before the first window."""
WINDOW_SHARE = 0.2
EXAMPLES = 3


@dataclass(frozen=True)
class State:
    """The broker's statistics for a subscription at the end.

    Attributes:
        name: topic and subscription.
        backlog: number of messages that are not acknowledged.
        unacknowledged: number of these that are pending at consumers.
        consumers: number of connected consumers.
        consumers_expected: expected number of consumers.
    """

    name: str
    backlog: int
    unacknowledged: int
    consumers: int
    consumers_expected: int

    @property
    def is_clear(self) -> bool:
        """Whether all messages are acknowledged and all consumers are connected."""
        return not self.backlog and not self.unacknowledged and self.consumers == self.consumers_expected


@dataclass(frozen=True)
class Events:
    """Counts of events.

    Attributes:
        joins: number of opened consumers.
        lives: number of topics created and deleted.
        unloads: number of topic unloads.
        settled_s: seconds from the last message to the last acknowledgement.
    """

    joins: int
    lives: int
    unloads: int
    settled_s: float


@dataclass(frozen=True)
class Outcome:
    """All results of a run.

    Attributes:
        sources: messages of all topics.
        accounts: accounts of all subscriptions.
        faults: errors detected during the run.
        states: statistics of the persistent subscriptions.
        events: counted events.
        minutes: measurements by minute.
        lives: memory of all processes.
    """

    sources: Sequence[Source]
    accounts: Sequence[Account]
    faults: Faults
    states: Sequence[State]
    events: Events
    minutes: Sequence[Minute]
    lives: Sequence[Life]


def judge(outcome: Outcome) -> Verdict:
    """Check a run, and return the verdict."""
    verdict = Verdict()
    published = sum(sum(source.published) for source in outcome.sources)
    official = sum(sum(source.published) for source in outcome.sources if source.topic.is_official)
    events = outcome.events
    verdict.notes.append(
        f"published {published:,} messages ({official / max(1, published):.0%} with the official client) to"
        f" {len(outcome.sources)} topics, {events.joins:,} consumers connected, {events.unloads:,} topics were"
        " unloaded"
    )
    _judge_accounts(outcome, verdict)
    unclear = [state for state in outcome.states if not state.is_clear]
    said = f"all {len(outcome.states):,} without backlog and with all consumers"
    if unclear:
        said = f"{len(unclear):,} of {len(outcome.states):,} have a backlog or missing consumers: {_examples(unclear)}"
    verdict.compare("subscriptions", said, not unclear)
    verdict.compare("topics created and deleted", f"{events.lives:,}", events.lives > 0)
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
        f"all {settled:,} settled {outcome.events.settled_s:.0f} s after the last was published, {dead:,} of them as"
        f" dead letters; {again:,} were redelivered afterwards"
    )
    if lacking:
        said = f"{len(lacking):,} of {len(lacks):,} subscriptions lack some: {_examples(lacking)}"
    verdict.compare("messages", said, not lacking)
    failing = sum(source.failing for source in outcome.sources)
    verdict.compare("dead letters", f"{dead:,}, and {failing:,} messages that all consumers rejected", dead == failing)


def judge_memory(life: Life, verdict: Verdict) -> None:
    """Compare the memory of a process at the end with that after its start."""
    began, ended = life.looks[0][0], life.looks[-1][0]
    seconds = ended - began
    name = f"memory of the {life.kind}"
    if seconds < MEMORY_JUDGED_S:
        verdict.notes.append(f"{name}: not checked, which requires {MEMORY_JUDGED_S:g} s")
        return
    first = began + WARM_SHARE * seconds
    windows = ((first, first + WINDOW_SHARE * seconds), (ended - WINDOW_SHARE * seconds, ended))
    before, after = (
        statistics.median(mib for age_s, mib in life.looks if begin <= age_s <= end) for begin, end in windows
    )
    said = f"{before:.1f} MiB at the start, {after:.1f} MiB at the end ({after / before - 1:+.1%})"
    verdict.compare(name, said, after <= before * (1 + MEMORY_GROWTH))


def _examples(wrong: Sequence[object]) -> str:
    return ", ".join(map(str, wrong[:EXAMPLES]))
