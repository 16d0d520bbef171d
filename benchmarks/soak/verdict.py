"""The verdict of a soak: whether performance stayed constant, and every message was counted correctly.

Each minute one of four kinds of processes is killed in turn, so cycles of four minutes are compared, the second and the
last. The first is not used, as caches fill and the state store creates its keys. Data on the disk becomes constant
later, as a ledger is only deleted when it is full and completely acknowledged, so there thirds of the time are
compared.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from .counting import FAILS_EVERY
from .minutes import Life, Minute
from .report import Verdict
from .servers import DEAD, EXACT, KINDS, LEAST, OUTPUTS

TURN = len(KINDS)
MINUTES_JUDGED = 3 * TURN
RATE_SHARE = 0.95
MEMORY_GROWTH = 0.05
DISK_GROWTH = 0.10
DISK_SPARE_MIB = 64.0
"""Additional allowed growth: two more journal files may be in use."""
LIFE_S, LIFE_WARM_S = 150.0, 60.0
"""Minimum lifetime of processes that are checked for growth, and its initial part that is ignored."""
LIFE_SPARE_MIB = 4.0
"""Growth that is always allowed for a small process, such as the state store's cache during an output backlog."""
EXAMPLES = 3
T = TypeVar("T")


@dataclass(frozen=True)
class Counts:
    """Numbers of published and processed messages.

    Attributes:
        payloads: how often each payload was published.
        keys: number of messages by key.
        outputs: how often each payload was received, by topic.
        states: counters by function.
        again: maximum number of messages processed more than once with ATLEAST_ONCE.
    """

    payloads: Mapping[bytes, int]
    keys: Mapping[str, int]
    outputs: Mapping[str, Mapping[bytes, int]]
    states: Mapping[str, Mapping[str, int]]
    again: int


@dataclass(frozen=True)
class Outcome:
    """All results of a run.

    Attributes:
        rate: requested messages per second.
        maximum: maximum messages per second before the run.
        maximum_after: maximum messages per second after the run.
        minutes: measurements by minute.
        lives: memory of all processes.
        counts: counts at the end.
    """

    rate: float
    maximum: float
    maximum_after: float
    minutes: Sequence[Minute]
    lives: Sequence[Life]
    counts: Counts


def judge(outcome: Outcome) -> Verdict:
    """Check a run, and return the verdict."""
    verdict = Verdict()
    _judge_counts(outcome.counts, verdict)
    verdict.notes.append(
        f"maximum before {outcome.maximum:,.0f}/s, afterwards {outcome.maximum_after:,.0f}/s; not checked, as it"
        " depends on other load on the machine"
    )
    if len(outcome.minutes) < MINUTES_JUDGED:
        verdict.notes.append(f"rates, memory and disk were not checked, which requires {MINUTES_JUDGED} minutes")
        return verdict
    first, last = outcome.minutes[TURN : 2 * TURN], outcome.minutes[-TURN:]
    busy = [statistics.fmean(minute.others_share for minute in minutes) for minutes in (first, last)]
    others = f"other programs used {busy[0]:.0%} and {busy[1]:.0%} of the CPUs"
    for function in OUTPUTS:
        before, after = _rate(first, function), _rate(last, function)
        said = f"{before:,.0f}/s at the start, {after:,.0f}/s at the end, {outcome.rate:,.0f}/s requested; {others}"
        verdict.compare(f"rate of {function}", said, after >= RATE_SHARE * max(before, outcome.rate))
    before, after = (statistics.median(minute.memory for minute in minutes) for minutes in (first, last))
    said = f"{before:.0f} MiB at the start, {after:.0f} MiB at the end ({after / before - 1:+.1%})"
    verdict.compare("memory of all processes", said, after <= before * (1 + MEMORY_GROWTH))
    _judge_lives(outcome.lives, verdict)
    third = len(outcome.minutes) // 3
    middle, end = outcome.minutes[third : 2 * third], outcome.minutes[-third:]
    before, after = (max(minute.disk_mib for minute in minutes) for minutes in (middle, end))
    said = f"{before:.0f} MiB at most in the middle third, {after:.0f} MiB in the last"
    verdict.compare("data and logs", said, after <= before * (1 + DISK_GROWTH) + DISK_SPARE_MIB)
    before, after = (statistics.fmean(minute.cpu_us for minute in minutes) for minutes in (first, last))
    verdict.notes.append(f"CPU time per message: {before:.1f} µs at the start, {after:.1f} µs at the end")
    return verdict


def _rate(minutes: Sequence[Minute], function: str) -> float:
    return sum(minute.processed[function] for minute in minutes) / sum(minute.seconds for minute in minutes)


def _judge_lives(lives: Sequence[Life], verdict: Verdict) -> None:
    """Check for memory growth during the life of a process, which kills would hide."""
    growths: dict[str, list[tuple[float, bool]]] = {}
    for life in lives:
        looks = [(age, mib) for age, mib in life.looks if age >= LIFE_WARM_S]
        if looks and looks[-1][0] >= LIFE_S:
            middle = (LIFE_WARM_S + looks[-1][0]) / 2
            early = statistics.median(mib for age, mib in looks if age <= middle)
            late = statistics.median(mib for age, mib in looks if age > middle)
            is_level = late <= max(early * (1 + MEMORY_GROWTH), early + LIFE_SPARE_MIB)
            growths.setdefault(life.kind, []).append((late / early - 1, is_level))
    for kind, found in growths.items():
        growth = statistics.median(growth for growth, _ in found)
        said = f"{growth:+.1%} in the second half of a life, median of {len(found)} lives of {LIFE_S:g} s or more"
        verdict.compare(f"memory of one {kind}", said, 2 * sum(is_level for _, is_level in found) >= len(found))


def _judge_counts(counts: Counts, verdict: Verdict) -> None:
    """Compare all output payloads and counters with the published messages."""
    unlucky = {payload for payload in counts.payloads if _fails(payload)}
    lucky = {payload: times for payload, times in counts.payloads.items() if payload not in unlucky}
    dead = {payload: counts.payloads[payload] for payload in unlucky}
    lucky_keys = _keys_without(counts, unlucky)
    published, failed = sum(counts.payloads.values()), sum(dead.values())
    verdict.notes.append(f"published {published:,} messages, of which {failed:,} failed ({failed / published:.2%})")
    _same(verdict, f"outputs of {EXACT}", lucky, counts.outputs[OUTPUTS[EXACT]])
    _same(verdict, f"dead letters of {EXACT}", dead, counts.outputs[DEAD])
    _same(verdict, f"counters of {EXACT}", {**lucky_keys, "dead letters": failed}, counts.states[EXACT])
    _bounded(verdict, f"outputs of {LEAST}", counts.payloads, counts.outputs[OUTPUTS[LEAST]], counts.again)
    _bounded(verdict, f"counters of {LEAST}", counts.keys, counts.states[LEAST], counts.again)


def _fails(payload: bytes) -> bool:
    return int(payload[len(b'{"id":') : payload.index(b",")]) % FAILS_EVERY == 0


def _keys_without(counts: Counts, unlucky: set[bytes]) -> dict[str, int]:
    keys = Counter(counts.keys)
    for payload in unlucky:
        keys[payload.split(b'"user":"', 1)[1].split(b'"', 1)[0].decode()] -= counts.payloads[payload]
    return dict(keys)


def _same(verdict: Verdict, name: str, expected: Mapping[T, int], found: Mapping[T, int]) -> None:
    wrong = [key for key in {**expected, **found} if expected.get(key, 0) != found.get(key, 0)]
    said = f"{sum(found.values()):,} as published"
    if wrong:
        said = f"{sum(found.values()):,}, expected {sum(expected.values()):,}, {_examples(wrong, expected, found)}"
    verdict.compare(name, said, not wrong)


def _bounded(verdict: Verdict, name: str, expected: Mapping[T, int], found: Mapping[T, int], again: int) -> None:
    missing = [key for key, times in expected.items() if found.get(key, 0) < times]
    unknown = [key for key, times in found.items() if times and key not in expected]
    more = sum(found.values()) - sum(expected.values())
    if missing or unknown:
        said = f"some are missing or were never published, {_examples(missing + unknown, expected, found)}"
    else:
        said = f"{sum(found.values()):,}, of which {more:,} were duplicates; kills allow {again:,}"
    verdict.compare(name, said, not missing and not unknown and more <= again)


def _examples(wrong: Sequence[T], expected: Mapping[T, int], found: Mapping[T, int]) -> str:
    shown = ", ".join(f"{key!r} {found.get(key, 0)}, expected {expected.get(key, 0)}" for key in wrong[:EXAMPLES])
    return f"{len(wrong):,} of them wrong: {shown}"
