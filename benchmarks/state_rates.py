"""State calls of the context: counting words, and single calls, compared with one state store request per call.

The keys of single calls are those of the official client's messages, or their first letter for messages without keys.
Our own encoder's messages also have no keys, so keys are in the text.
"""

from __future__ import annotations

import contextlib
import os
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import httpx

from tests.support.functions import Functions
from tests.support.servers import Server

try:
    from magnetar.state.client import TableClient
    from magnetar.state.values import Increment, Put, Value
except ModuleNotFoundError:  # the base of `benchmarks.against` may be older than this package
    from magnetar.runtime.state.client import TableClient  # type: ignore[import-not-found, no-redef]
    from magnetar.runtime.state.values import Increment, Put, Value  # type: ignore[import-not-found, no-redef]

from .figure import Figure, Table
from .load import hold, publish_entries
from .plan import Plan
from .real_input import APPLICATION, OWN, PLAIN, SHAPES, OfficialInput, official_input

WORD_COUNT = """
from pulsar import Function

class WordCount(Function):
    def process(self, input, context):
        for word in input.split():
            context.incr_counter(word, 1)
"""
CALLS = """
def process(text, context):
    call, key = text.split()
    if call == "get":
        context.get_state(key)
    elif call == "put":
        context.put_state(key, "fifty bytes of text, as a small value usually is..")
    else:
        context.incr_counter(key, 1)
"""
CALL_BY_KEY = """
SEEN = set()

def process(text, context):
    key = context.get_partition_key() or text[0]
    {call}
"""
VALUE = "fifty bytes of text, as a small value usually is.."
CALLS_BY_KEY = {
    "put": f"context.put_state(key, {VALUE!r})",
    "get": f"context.get_state(key) if key in SEEN else (SEEN.add(key), context.put_state(key, {VALUE!r}))",
    "increment": "context.incr_counter(key, 1)",
}
BATCH = 1000
WORDS = 5  # per message
VOCABULARY = 2000
KEYS = 1000
WORDS_TARGET = 100_000
EXPECTED_WORDS = 800_000  # per second; only used to determine the number of messages
EXPECTED_CALLS = {PLAIN: 150_000, APPLICATION: 100_000, OWN: 300_000}
POLL_S = 0.02
TIMEOUT_S = 120
PEER = "one RPC per call"


def measure_state(plan: Plan) -> Iterator[Figure]:
    """Measure words per second of one instance, then calls per second of each kind."""
    with plan.server("standalone") as server:
        messages = int(EXPECTED_WORDS / WORDS * plan.seconds) // BATCH * BATCH
        ours = [_words(server, messages, seed) for seed in range(plan.repeats)]
        with Direct(server) as direct:
            peers = {
                call: direct.rate(ask, plan.seconds)
                for call, ask in (("put", direct.put), ("get", direct.get), ("increment", direct.increment))
            }
        for shape in SHAPES:
            yield from _calls_by_key(plan, server, official_input(plan, shape, BATCH), peers)
        yield Figure(
            name=f"stateful word count, {OWN}, input batches of 1000",
            ours=statistics.median(ours),
            unit="words/s",
            peer=peers["increment"],
            peer_name=PEER,
            target=WORDS_TARGET,
            note=f"{WORDS} words a message, {VOCABULARY:,} different ones; every count compared",
            table=Table.OWN,
        )
        yield from _calls(plan, server, peers)


def _calls_by_key(plan: Plan, server: Server, given: OfficialInput, peers: Mapping[str, float]) -> Iterator[Figure]:
    """Measure each kind of call on the same topic, with a separate function each."""
    messages = int(EXPECTED_CALLS[given.name] * plan.seconds) // BATCH * BATCH
    topic = f"{given.name}-in"
    hold(server.service_url, topic, "keep")
    given.fill(server.service_url, topic, messages)
    keys = Counter(
        key or payload[:1].decode() for key, payload in zip(given.keys(messages), given.payloads(messages), strict=True)
    )
    for call in CALLS_BY_KEY:
        rates = [_by_key(server, f"{call}{given.name}{number}", topic, call, keys) for number in range(plan.repeats)]
        yield Figure(
            name=f"{call} through the context, {given.name}, input batches of 1000",
            ours=statistics.median(rates),
            unit="calls/s",
            peer=peers[call],
            peer_name=PEER,
            note=f"{len(keys):,} keys, one call a message",
            table=given.table,
        )


def _by_key(server: Server, name: str, topic: str, call: str, keys: Counter[str]) -> float:
    """Return calls per second of one function; its final state is verified."""
    hold(server.service_url, topic, f"public/default/{name}")
    source = CALL_BY_KEY.format(call=CALLS_BY_KEY[call])
    with deployed(server, name, f"{name}.process", source, inputs=[topic]):
        rate = Processed(server, topic, name).slope(keys.total() // BATCH) * BATCH
        values = _values(server, name, list(keys))
    if call == "increment":
        assert {key: value and value.number for key, value in values.items()} == dict(keys), f"{name} counted wrong"
    else:
        assert all(value and value.data == VALUE.encode() for value in values.values()), f"{name} stored wrong values"
    return rate


def _words(server: Server, messages: int, seed: int) -> float:
    """Count words with a separate function; return words per second."""
    rng = random.Random(seed)
    name, topic = f"words{seed}", f"words{seed}-in"
    vocabulary = [f"word{number}" for number in range(VOCABULARY)]
    texts = [" ".join(rng.choices(vocabulary, k=WORDS)) for _ in range(messages)]
    hold(server.service_url, topic, f"public/default/{name}")
    publish_entries(server.service_url, topic, [text.encode() for text in texts], BATCH)
    with deployed(server, name, f"{name}.WordCount", WORD_COUNT):
        rate = Processed(server, topic, name).slope(messages // BATCH) * BATCH * WORDS
        expected = Counter(word for text in texts for word in text.split())
        found = _counters(server, name, list(expected))
    assert found == dict(expected), f"{name} counted wrong"
    return rate


def _counters(server: Server, name: str, keys: list[str]) -> dict[str, int | None]:
    return {key: None if value is None else value.number for key, value in _values(server, name, keys).items()}


def _values(server: Server, name: str, keys: list[str]) -> dict[str, Value | None]:
    tables = TableClient(str(server.addresses["stateStorageServiceUrl"]))
    try:
        (table,) = tables.tables(f"public/default/{name}@")
        values = tables.read(table, [key.encode() for key in keys])
    finally:
        tables.close()
    return dict(zip(keys, values, strict=True))


def _calls(plan: Plan, server: Server, peers: Mapping[str, float]) -> Iterator[Figure]:
    messages = int(EXPECTED_CALLS[OWN] * plan.seconds) // BATCH * BATCH
    name = "calls"
    hold(server.service_url, f"{name}-in", f"public/default/{name}")
    processed = Processed(server, f"{name}-in", name)
    with deployed(server, name, f"{name}.process", CALLS):
        for call, peer in peers.items():
            rates = [_one_call(server, processed, call, messages, seed) for seed in range(plan.repeats)]
            yield Figure(
                name=f"{call} through the context, {OWN}, input batches of 1000",
                ours=statistics.median(rates),
                unit="calls/s",
                peer=peer,
                peer_name=PEER,
                note=f"{KEYS:,} keys at random, one call a message",
                table=Table.OWN,
            )


def _one_call(server: Server, processed: Processed, call: str, messages: int, seed: int) -> float:
    rng = random.Random(seed)
    prefix = "counter" if call == "increment" else "key"
    inputs = [f"{call} {prefix}{rng.randrange(KEYS)}".encode() for _ in range(messages)]
    publish_entries(server.service_url, processed.topic, inputs, BATCH)
    return processed.slope(messages // BATCH) * BATCH


@contextlib.contextmanager
def deployed(server: Server, name: str, class_name: str, source: str, **config: object) -> Iterator[None]:
    """Deploy a function while the context lasts; its input is `<name>-in` unless the config contains another."""
    full = {
        "className": class_name,
        "inputs": [f"{name}-in"],
        "subscriptionPosition": "Earliest",
        "runtimeEnv": "process",
        **config,
    }
    with Functions(server.web_url) as functions:
        functions.create(name, source, full).raise_for_status()
        yield
        functions.delete(name)


class Processed:
    """Watches the number of entries acknowledged by a function."""

    def __init__(self, server: Server, topic: str, function: str) -> None:
        self.topic = topic
        self._server = server
        self._function = function
        self._url = f"{server.web_url}/admin/v2/persistent/public/default/{topic}/stats"

    def slope(self, entries: int) -> float:
        """Wait until `entries` entries are processed; return entries per second between 10 % and 95 %."""
        samples: list[tuple[float, int]] = []
        deadline = time.monotonic() + TIMEOUT_S
        with httpx.Client(timeout=10) as http:
            while not samples or samples[-1][1] < entries:
                subscriptions = http.get(self._url).raise_for_status().json()["subscriptions"]
                left = int(subscriptions[f"public/default/{self._function}"]["msgBacklog"])
                samples.append((time.perf_counter(), entries - left))
                if time.monotonic() > deadline:
                    tail = self._server.log_tail()
                    raise TimeoutError(f"{left} of {entries} entries remain after {TIMEOUT_S} s:\n{tail}")
                time.sleep(POLL_S)
        inside = [sample for sample in samples if 0.1 * entries <= sample[1] <= 0.95 * entries]
        if len(inside) < 2:
            raise AssertionError(f"too few samples between 10 % and 95 %: {samples[-5:]}; increase the measuring time")
        (t0, n0), (t1, n1) = inside[0], inside[-1]
        return (n1 - n0) / (t1 - t0)


class Direct:
    """The peer: one state store request per call, as a program without batching would make them."""

    def __init__(self, server: Server) -> None:
        self._tables = TableClient(str(server.addresses["stateStorageServiceUrl"]))
        self._writer = os.urandom(16)
        self._sequence = 0

    def __enter__(self) -> Direct:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._tables.close()

    def get(self, key: bytes) -> None:
        self._tables.read("public/default/direct", [key])

    def put(self, key: bytes) -> None:
        self._apply(Put(key, b"fifty bytes of text, as a small value usually is.."))

    def increment(self, key: bytes) -> None:
        self._apply(Increment(b"counter" + key, 1))

    def _apply(self, change: Put | Increment) -> None:
        self._sequence += 1
        self._tables.apply("public/default/direct", self._writer, self._sequence, [change])

    def rate(self, call: Callable[[bytes], None], seconds: float) -> float:
        """Make sequential calls; return calls per second."""
        rng = random.Random(1)
        began = time.perf_counter()
        count = 0
        while (took_s := time.perf_counter() - began) < seconds:
            call(b"key%d" % rng.randrange(KEYS))
            count += 1
        return count / took_s
