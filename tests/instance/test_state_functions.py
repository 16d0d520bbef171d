"""Functions with state, against a real broker and a real state store: what is stored, and what the function reads."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest
from magnetar.state.client import Increment, Put
from magnetar.wire import functions_pb2 as records

from tests.instance.stateful import CLASS_NAME, WORD_COUNT, Stateful, random_texts, recount
from tests.support.eventually import until


async def test_word_count_of_pulsars_documentation_is_exact_when_its_input_is_acknowledged(stateful: Stateful) -> None:
    texts = random_texts(random.Random(5), 5000)
    spec = stateful.spec(WORD_COUNT, CLASS_NAME)
    await stateful.start(spec)
    await stateful.send([texts[begin : begin + 250] for begin in range(0, 5000, 250)])
    await stateful.all_acknowledged()
    expected = recount(texts)
    assert stateful.counters(list(expected)) == expected


EVERYTHING = """
def process(text, context):
    what, _, key = text.partition(" ")
    if what == "incr":
        context.incr_counter(key, 3)
    elif what == "put":
        context.put_state(key, "wert ä")
    elif what == "bytes":
        context.put_state(key, b"\\xff\\x00")
    elif what == "delete":
        context.delete_state(key)
    elif what == "del_counter":
        context.del_counter(key)
    elif what == "get":
        return repr(context.get_state(key))
    elif what == "count":
        return repr(context.get_counter(key))
"""


CHANGE = """
from magnetar import batch_function

def change(text, context):
    context.incr_counter("n", 1)
    if text == "bad":
        context.incr_counter("bad", 1)
        context.put_state("last", text)
        raise ValueError(text)
    if text == "quiet":
        raise ValueError(text)
    context.put_state("last", text)
"""
KINDS = {
    "plain": "def process(text, context):\n    change(text, context)\n",
    "generator": "def process(text, context):\n    change(text, context)\n    yield text\n",
    "async": "async def process(text, context):\n    change(text, context)\n",
    "batch": "@batch_function\ndef process(texts, context):\n    for text in texts:\n        change(text, context)\n",
}


@pytest.mark.parametrize("kind", KINDS)
async def test_failed_tries_change_nothing(stateful: Stateful, kind: str) -> None:
    retries = {"maxMessageRetries": 2}
    source = {"negativeAckRedeliveryDelayMs": 10}
    await stateful.start(stateful.spec(CHANGE + KINDS[kind], retryDetails=retries, source=source))
    await stateful.send([[b"good"]])
    await stateful.all_acknowledged()
    await stateful.send([[b"bad", b"quiet"] if kind == "batch" else [b"fine", b"bad", b"quiet", b"bad"]])
    await stateful.all_acknowledged()
    assert stateful.counters(["n", "bad"]) == {"n": 1 if kind == "batch" else 2, "bad": None}
    (last,) = stateful.tables.read(stateful.function, [b"last"])
    assert last is not None
    assert last.data == (b"good" if kind == "batch" else b"fine")


async def test_async_call_of_which_one_change_is_refused_changes_nothing(stateful: Stateful) -> None:
    code = """
async def process(text, context):
    if text == "first":
        context.put_state("word", text)
    else:
        context.incr_counter("n", 1)
        context.incr_counter("word", 1)
"""
    await stateful.start(stateful.spec(code, retryDetails={"maxMessageRetries": 0}))
    await stateful.send([[b"first", b"second"]])
    await stateful.all_acknowledged()
    assert stateful.counters(["n"]) == {"n": None}


async def test_much_state_of_a_generator_without_outputs_is_stored_while_it_runs(stateful: Stateful) -> None:
    code = """
import pathlib, time
def process(text, context):
    for number in range(20_000):
        context.incr_counter(f"k{number}", 1)
    end = time.monotonic() + 20
    while context.get_counter("k0") and not (pathlib.Path(__file__).parent / "end").exists():
        time.sleep(0.02)
        assert time.monotonic() < end
        yield None
"""
    spec = stateful.spec(code)
    spec.details.sink.topic = ""
    await stateful.start(spec)
    await stateful.send([[b"text"]])

    async def is_stored() -> bool:
        return stateful.counters(["k0", "k19999"]) == {"k0": 1, "k19999": 1}

    await until(is_stored)
    assert await stateful.backlog() == 1
    (spec.package / "end").touch()
    await stateful.all_acknowledged()


@pytest.mark.parametrize("together", [True, False])
async def test_function_sees_its_own_changes(stateful: Stateful, together: bool) -> None:
    """In one batch; and one by one, where what was changed is on its way or stored already."""
    spec = stateful.spec(EVERYTHING)
    await stateful.start(spec)
    steps = [
        ("get a", "None"), ("count a", "0"), ("incr a", ""), ("incr a", ""), ("count a", "6"),
        ("get a", repr(bytes(7) + b"\6")), ("put a", ""), ("get a", repr("wert ä".encode())), ("bytes a", ""),
        ("get a", repr(b"\xff\0")), ("delete a", ""), ("get a", "None"), ("incr a", ""), ("count a", "3"),
        ("del_counter a", ""), ("count a", "0"), ("get b", "None"),
    ]  # fmt: skip
    messages = [step.encode() for step, _ in steps]
    await stateful.send([messages] if together else [[message] for message in messages])
    expected = [answer.encode() for _, answer in steps if answer]
    assert await stateful.receive(len(expected)) == expected


async def test_state_of_one_life_is_there_in_the_next(stateful: Stateful) -> None:
    spec = stateful.spec(EVERYTHING)
    first = await stateful.start(spec)
    await stateful.send([[b"incr a", b"put b"]])
    await stateful.all_acknowledged()
    await first.stop(30)
    await stateful.start(spec)
    await stateful.send([[b"count a", b"get b"]])
    assert await stateful.receive(2) == [b"3", repr("wert ä".encode()).encode()]


async def test_instances_add_up_on_the_same_keys(stateful: Stateful) -> None:
    texts = random_texts(random.Random(6), 4000)
    specs = [stateful.spec(WORD_COUNT, CLASS_NAME, number) for number in range(2)]
    instances = [await stateful.start(spec) for spec in specs]
    await stateful.send([texts[begin : begin + 20] for begin in range(0, 4000, 20)])
    await stateful.all_acknowledged()
    expected = recount(texts)
    assert stateful.counters(list(expected)) == expected
    received = [(await instance.status()).numReceived for instance in instances]
    assert min(received) > 0, f"one did it alone: {received}"


@pytest.mark.parametrize("guarantee", [records.ATLEAST_ONCE, records.EFFECTIVELY_ONCE])
async def test_what_others_write_is_read_by_the_next_message(
    stateful: Stateful, guarantee: records.ProcessingGuarantees
) -> None:
    """Whether it came over REST or from another instance, and whatever was read and kept before."""
    await stateful.start(stateful.spec(EVERYTHING, processingGuarantees=guarantee))
    writer = os.urandom(16)
    for number in range(6):
        data = b"%d" % number
        stateful.tables.put(stateful.function, b"a", data)
        stateful.tables.apply(stateful.function, writer, number + 1, [Increment(b"n", 1)])
        await stateful.send([[b"get a", b"count n", b"get b"]])
        answers = await stateful.receive(3 * (number + 1))
        assert answers[-3:] == [repr(data).encode(), b"%d" % (number + 1), b"None"]


@pytest.mark.parametrize("guarantee", [records.ATMOST_ONCE, records.MANUAL])
async def test_changes_are_stored_under_the_other_guarantees(
    stateful: Stateful, guarantee: records.ProcessingGuarantees
) -> None:
    spec = stateful.spec(WORD_COUNT, CLASS_NAME, processingGuarantees=guarantee)
    await stateful.start(spec)
    await stateful.send([[b"a b a", b"b a"]])

    async def is_stored() -> bool:
        return stateful.counters(["a", "b"]) == {"a": 3, "b": 2}

    await until(is_stored)


WRONG = """
class Liar:
    def __index__(self): return "no"

def process(text, context):
    context.incr_counter("seen", 1)
    match text:
        case "key": context.incr_counter(b"k", 1)
        case "no key": context.put_state("", "v")
        case "long key": context.put_state("k" * 5000, "v")
        case "wrong key": context.get_state(["k"])
        case "half a character": context.put_state("\\ud800", "v")
        case "amount": context.incr_counter("k", 1.5)
        case "large amount": context.incr_counter("k", 2 ** 63)
        case "value": context.put_state("k", {"a": 1})
        case "large value": context.put_state("k", "v" * (1 << 20) + "v")
        case "no counter": context.put_state("t", "text"); context.incr_counter("t", 1)
        case "text": context.put_state("u", "text")
        case "no counter either": context.get_counter("u")
"""


async def test_wrong_calls_fail_the_message_with_a_clear_error(stateful: Stateful) -> None:
    wrong = {
        "key": "TypeError: a state key must be a str, not bytes",
        "no key": "StateRefused: a state key must have 1 to 4096 bytes, not 0",
        "long key": "StateRefused: a state key must have 1 to 4096 bytes, not 5000",
        "wrong key": "TypeError",
        "half a character": "UnicodeEncodeError",
        "amount": "TypeError: a counter amount must be an int, not float",
        "large amount": "OverflowError: counter amount 9223372036854775808 exceeds 64 bits",
        "value": "TypeError: a state value must be str or bytes, not dict",
        "large value": "1048577 bytes",
        "no counter": "StateRefused: state 't' is not a counter: it has 4 bytes, not 8",
        "no counter either": "StateRefused: state 'u' is not a counter: it has 4 bytes, not 8",
    }
    spec = stateful.spec(WRONG)
    instance = await stateful.start(spec)
    await stateful.send([[b"text"]])
    for number, (text, expected) in enumerate(wrong.items(), 1):
        await stateful.send([[text.encode()]])

        async def has_failed(times: int = number) -> bool:
            return (await instance.status()).numUserExceptions >= times

        await until(has_failed)
        latest = (await instance.status()).latestUserExceptions[-1].exceptionString
        assert expected in latest, text

    async def is_counted() -> bool:  # what a message changed before it failed is not
        return stateful.counters(["seen"]) == {"seen": 1}

    await until(is_counted)


async def test_increment_of_text_that_another_wrote_fails_its_message_and_no_other(stateful: Stateful) -> None:
    """The store refuses it long after the call; the messages come again, and then the call itself is refused."""
    spec = stateful.spec(WORD_COUNT, CLASS_NAME)
    stateful.tables.apply(spec.function_name, os.urandom(16), 1, [Put(b"text", b"hello")])
    instance = await stateful.start(spec)
    await stateful.send([[b"a b", b"text", b"a"]])

    async def is_refused() -> bool:
        return (await instance.status()).numSystemExceptions >= 1

    await until(is_refused)
    status = await instance.status()
    assert status.running
    assert "'text'" in status.latestSystemExceptions[-1].exceptionString
    assert stateful.counters(["a", "b"]) == {"a": None, "b": None}
    # What was negatively acknowledged comes again after a minute; here at once, to another consumer of the kind.
    await stateful.send([[b"a b", b"text", b"a"]])

    async def is_counted() -> bool:
        return stateful.counters(["a", "b"]) == {"a": 2, "b": 1}

    await until(is_counted)
    status = await instance.status()
    assert status.numUserExceptions == 1
    assert "state 'text' is not a counter: it has 5 bytes" in status.latestUserExceptions[-1].exceptionString


async def test_key_with_eight_bytes_is_a_counter(stateful: Stateful) -> None:
    spec = stateful.spec(EVERYTHING)
    stateful.tables.apply(spec.function_name, os.urandom(16), 1, [Put(b"a", bytes(7) + b"\5"), Increment(b"b", -1)])
    await stateful.start(spec)
    await stateful.send([[b"count a", b"incr a", b"count a", b"get b"]])
    assert await stateful.receive(3) == [b"5", b"8", repr(b"\xff" * 8).encode()]


async def test_many_and_large_changes_of_one_batch_are_stored(stateful: Stateful) -> None:
    """More than one call of the state store may carry."""
    code = """
def process(text, context):
    number = text.removeprefix("n")
    context.put_state(f"large-{number}", number.zfill(10) * 100_000)
    for i in range(600):
        context.incr_counter(f"{number}-{i}", 1)
"""
    spec = stateful.spec(code)
    await stateful.start(spec)
    numbers = [str(number) for number in range(25)]
    await stateful.send([[f"n{number}".encode() for number in numbers]])
    await asyncio.wait_for(stateful.all_acknowledged(), 30)
    keys = [f"{number}-{i}" for number in numbers for i in range(600)]
    for begin in range(0, len(keys), 10_000):
        assert set(stateful.counters(keys[begin : begin + 10_000]).values()) == {1}
    for number in numbers:
        (value,) = stateful.tables.read(spec.function_name, [f"large-{number}".encode()])
        assert value is not None
        assert value.data == number.zfill(10).encode() * 100_000


async def test_message_at_hand_still_reads_its_state_when_the_instance_is_stopped(
    stateful: Stateful, tmp_path: Path
) -> None:
    code = f"""
import pathlib, time

def process(text, context):
    context.incr_counter("a", 1)
    pathlib.Path({str(tmp_path / "begun")!r}).touch()
    while not pathlib.Path({str(tmp_path / "go")!r}).exists():
        time.sleep(0.01)
    return str(context.get_counter("a"))
"""
    spec = stateful.spec(code, processingGuarantees=records.ATMOST_ONCE)
    instance = await stateful.start(spec)
    await stateful.send([[b"first"]])

    async def has_begun() -> bool:
        return (tmp_path / "begun").exists()

    await until(has_begun)
    stopping = asyncio.create_task(instance.stop(30))
    await asyncio.sleep(0.2)
    (tmp_path / "go").touch()
    await stopping
    assert await stateful.receive(1) == [b"1"]
    assert stateful.counters(["a"]) == {"a": 1}
