"""Dead letters: a function that always fails, compared with loops that forward each message with the error.

With `maxMessageRetries: 0`, a failed message becomes a dead letter immediately, so this measures the cost of failure:
an exception with traceback, two log lines, publishing a message with properties, and an acknowledgement. The loops only
forward the exception and its message, without traceback and log.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import uvloop
from magnetar.client import AsyncClient, ConsumerConfig

from tests.support.servers import Server

from .figure import Figure
from .function_rates import Counter, Slope
from .json_rates import SOURCE
from .load import COMPARED, RECEIVER_QUEUE, TIMEOUT_S, hold
from .loops import OFFICIAL_LOOP, OWN_LOOP, Rate, figures_beside, looping
from .plan import Plan
from .real_input import APPLICATION, Message, official_input
from .sample_functions import WHY, refuse
from .state_rates import deployed

BATCH = 50
EXPECTED_RATE, OFFICIAL_RATE = 40_000, 6_000
"""Expected rates, only used to determine the number of messages."""
INPUT = "refused"


def measure_letters(plan: Plan) -> Iterator[Figure]:
    """Measure dead letter rates."""
    given = official_input(plan, APPLICATION, BATCH)
    count = int(EXPECTED_RATE * plan.seconds) // BATCH * BATCH
    fewer = int(OFFICIAL_RATE * plan.seconds) // BATCH * BATCH
    sent = given.messages(count)
    turns = []
    with plan.server("standalone") as server:
        for topic, messages in ((INPUT, count), (f"few-{INPUT}", fewer)):
            hold(server.service_url, topic, "keep")
            given.fill(server.service_url, topic, messages)
        for turn in range(plan.repeats):
            slope = _function(server, f"f{turn}", sent)
            own = _loop(server, OWN_LOOP, INPUT, f"loop{turn}", sent)
            turns.append((Rate(slope.rate, slope.cpu_us["instance"]), own))
        official = _loop(server, OFFICIAL_LOOP, f"few-{INPUT}", "official", sent[:fewer])
    yield from figures_beside(
        f"dead letters of a function that always fails, {APPLICATION}, input batches of {BATCH}",
        turns,
        official,
        unit="letters/s",
        table=given.table,
        note=f"maxMessageRetries 0; loops have neither traceback nor log; {slope.note}",
    )


def _function(server: Server, name: str, sent: Sequence[Message]) -> Slope:
    topic = f"{name}-letters"
    hold(server.service_url, topic, COMPARED)
    config = {"inputs": [INPUT], "maxMessageRetries": 0, "deadLetterTopic": topic}
    with (
        deployed(server, name, f"{name}.{refuse.__name__}", SOURCE, **config),
        Counter(server.web_url, topic) as counter,
    ):
        slope = counter.slope(len(sent), server, name)
    check_letters(read_letters(server.service_url, topic, len(sent)), sent, "TRACEBACK")
    return slope


def _loop(server: Server, module: str, source: str, name: str, sent: Sequence[Message]) -> Rate:
    topic = f"{name}-letters"
    hold(server.service_url, topic, COMPARED)
    with (
        looping(module, "letters", server.service_url, source, topic, name) as pid,
        Counter(server.web_url, topic) as counter,
    ):
        slope = counter.slope(len(sent), server, "", loop_pid=pid)
    check_letters(read_letters(server.service_url, topic, len(sent)), sent)
    return Rate(slope.rate, slope.cpu_us["loop"])


@dataclass(frozen=True)
class Letter:
    """A dead letter as stored in its topic."""

    payload: bytes
    key: str | None
    properties: Mapping[str, str]


def read_letters(service_url: str, topic: str, count: int) -> list[Letter]:
    """Return the first `count` letters of a topic."""
    return uvloop.run(_read_letters(service_url, topic, count))


async def _read_letters(service_url: str, topic: str, count: int) -> list[Letter]:
    config = ConsumerConfig(initial_position="Earliest", receiver_queue_size=RECEIVER_QUEUE)
    found: list[Letter] = []
    async with AsyncClient(service_url) as client, asyncio.timeout(TIMEOUT_S):
        consumer = await client.subscribe(topic, COMPARED, config)
        while len(found) < count:
            entry = await consumer.receive_entry()
            found += [Letter(message.data, message.key, message.properties) for message in entry.messages()]
            consumer.ack_entry(entry)
    return found


def check_letters(letters: Sequence[Letter], sent: Sequence[Message], *names: str) -> None:
    """Check that each message became one letter with its key, properties and error, and the properties `names`.

    Raises:
        AssertionError: a letter is missing, duplicate or wrong.
    """
    origins = {letter.properties.get("ORIGIN_MESSAGE_ID") for letter in letters}
    if not len(letters) == len(origins) == len(sent):
        raise AssertionError(f"got {len(letters)} letters of {len(origins)} messages, expected {len(sent)}")
    missing = collections.Counter(message.payload for message in sent)  # the input contains repetitions
    missing.subtract(letter.payload for letter in letters)
    if lost := next((payload for payload, times in missing.items() if times > 0), None):
        raise AssertionError(f"no letter for {lost[:120]!r}")
    of_payload = {message.payload: message for message in sent}
    for letter in letters:
        message = of_payload[letter.payload]
        expected = {**(message.properties or {}), "EXCEPTION": f"ValueError: {WHY}: {message.payload[:20].decode()}"}
        properties = letter.properties
        is_told = expected.items() <= properties.items() and properties.keys() >= set(names)
        if letter.key != message.key or not is_told:
            raise AssertionError(f"wrong letter for {message.payload[:120]!r}: key {letter.key}, {properties}")
