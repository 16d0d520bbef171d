"""EFFECTIVELY_ONCE while every process is killed or frozen at random: state and outputs equal a recount, exactly."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from .feed import SMALL_ENTRIES
from .mayhem import StatefulCluster
from .stateful_run import WORD_COUNT, Run, counters_of, name_of, recount, values_of

pytestmark = [pytest.mark.timeout(420)]

EXACT: dict[str, Any] = {"processingGuarantees": "EFFECTIVELY_ONCE"}
OUTPUT_PARTITIONS = 3
STATEFUL = ["instance", "worker", "store", "broker", "frozen instance"]
DIRECT = ["instance", "worker", "broker"]


def sized(few: list[str], few_messages: int, many: list[str], many_messages: int) -> list[object]:
    """A small run for `make test` and a large one; each is seed, kills, messages."""
    return [
        pytest.param(1, few, few_messages, id="few", marks=pytest.mark.slow),
        pytest.param(2, many, many_messages, id="many", marks=[pytest.mark.slow, pytest.mark.crash]),
    ]


@pytest.mark.parametrize(
    ("seed", "kills", "messages"),
    sized(STATEFUL, 60_000, [*STATEFUL * 2, *STATEFUL[:4], "frozen worker"], 300_000),
)
def test_word_count_equals_a_recount(stateful: StatefulCluster, seed: int, kills: list[str], messages: int) -> None:
    run = Run(stateful, f"words{seed}", seed, WORD_COUNT, **EXACT)
    try:
        run.survive(kills, messages)
        expected = recount([text for texts in run.input_texts() for text in texts])
        found = counters_of(run, sorted(expected))
        wrong = {key: (found[key], times) for key, times in expected.items() if found[key] != times}
        assert not wrong, f"{len(wrong)} of {len(found)} counters differ (found, true): {list(wrong.items())[:10]}"
    finally:
        run.close()


# The pauses keep some input in work whenever something is killed.
TWO_TOPICS = """
import time

def process(text, context):
    time.sleep(0.0003)
    name = text.split()[0]
    context.incr_counter("all", 1)
    context.put_state(name, text)
    # How many messages of this partition came before, as the state says it.
    topic = context.get_current_message_topic_name()
    number = int(context.get_state(topic) or 0)
    context.put_state(topic, str(number + 1))
    line = f"{name} {topic.rpartition('-')[2]} {number}"
    context.publish("SECOND", "second " + line, message_conf={"partition_key": name})
    return "first " + line
"""


@pytest.mark.parametrize(
    ("seed", "kills", "messages"),
    sized(["worker", "broker"], 10_000, [*STATEFUL * 3, *STATEFUL[:4], "frozen worker"], 60_000),
)
def test_two_partitioned_topics_and_state_agree(
    stateful: StatefulCluster, seed: int, kills: list[str], messages: int
) -> None:
    name = f"two{seed}"
    first, second = (f"persistent://public/default/{name}-{which}" for which in ("first", "second"))
    for output in (first, second):
        stateful.make_topic(output.rpartition("/")[2], OUTPUT_PARTITIONS)
    run = Run(stateful, name, seed, TWO_TOPICS.replace("SECOND", second), output=first, **EXACT)
    try:
        run.survive(kills, messages)
        partitions = run.input_texts()
        lines = Counter(
            f"{name_of(text)} {partition} {number}"
            for partition, texts in enumerate(partitions)
            for number, text in enumerate(texts)
        )
        for topic, word in ((first, "first"), (second, "second")):
            found = Counter(text.decode() for text in run.stored(topic))
            check_same(found, Counter(f"{word} {line}" for line in lines), topic)
        texts = {name_of(text): text for texts in partitions for text in texts}
        texts |= {topic: str(len(texts)) for topic, texts in zip(run.inputs, partitions, strict=True)}
        wrong = {
            key: (value, texts[key])
            for key, value in values_of(run, list(texts)).items()
            if value is None or value.data.decode() != texts[key]
        }
        assert not wrong, f"{len(wrong)} of {len(texts)} values differ (found, true): {list(wrong.items())[:5]}"
        assert run.number("all") == sum(map(len, partitions))
    finally:
        run.close()


PLAIN = """
import time

def process(text):
    time.sleep(0.0002)
    return 'done ' + text
"""


@pytest.mark.parametrize(("seed", "kills", "messages"), sized(["instance", "broker"], 20_000, DIRECT * 4, 120_000))
def test_direct_outputs_are_there_once(stateful: StatefulCluster, seed: int, kills: list[str], messages: int) -> None:
    """No state, and one topic without partitions: the broker's deduplication alone makes it exact."""
    name = f"direct{seed}"
    (output,) = stateful.make_topic(f"{name}-out")
    run = Run(stateful, name, seed, PLAIN, SMALL_ENTRIES, output=output, **EXACT)
    try:
        run.survive(kills, messages)
        expected = Counter(f"done {text}" for texts in run.input_texts() for text in texts)
        check_same(Counter(text.decode() for text in run.stored(output)), expected, output)
    finally:
        run.close()


def check_same(found: Counter[str], expected: Counter[str], topic: str) -> None:
    """Every output is there as often as it should be."""
    missing, extra = expected - found, found - expected
    wrong = f"{missing.total()} missing, {extra.total()} too many: {list(missing)[:5]}, {list(extra)[:5]}"
    assert found == expected, f"{topic}: {wrong}"
