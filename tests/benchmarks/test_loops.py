"""The benchmarks beside bare loops: what they refuse, what a share is, and that the loops do what they are to do."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
from pathlib import Path

import pytest

from benchmarks.figure import Table
from benchmarks.json_documents import SIZES_BYTES, document
from benchmarks.json_rates import SOURCE, compare_totals
from benchmarks.letter_rates import Letter, check_letters
from benchmarks.load import COMPARED, hold, publish_entries, read_outputs
from benchmarks.loops import OFFICIAL_LOOP, OWN_LOOP, Rate, figures_beside, looping
from benchmarks.own_loops import CALLS_MAX, Calls, chunks_of
from benchmarks.plan import Plan
from benchmarks.produce_rates import compare_lines, corpus_lines, write_lines
from benchmarks.real_input import Message

MESSAGE = Message(b'{"id":1,"user":"u001"}', key="u001", properties={"trace-id": "1"})
LETTER = Letter(
    MESSAGE.payload,
    "u001",
    {
        "trace-id": "1",
        "ORIGIN_MESSAGE_ID": "1:2:-1:0",
        "EXCEPTION": 'ValueError: this order has no price: {"id":1,"user":"u001',
        "TRACEBACK": "…",
    },
)


@pytest.mark.parametrize("size_bytes", SIZES_BYTES.values())
def test_orders_are_json_of_exactly_their_size_and_alike_with_the_same_seed(size_bytes: int) -> None:
    orders = [document(number, random.Random(number), size_bytes) for number in range(0, 20_000, 999)]
    assert {len(order) for order in orders} == {size_bytes}
    assert [json.loads(order)["id"] for order in orders] == list(range(0, 20_000, 999))
    assert orders[1] == document(999, random.Random(999), size_bytes)


def test_share_is_that_of_the_turns_and_misses_its_target_below_sixty_percent() -> None:
    turns = [(Rate(50, 2.0), Rate(100, 1.0)), (Rate(55, 2.0), Rate(100, 1.0)), (Rate(90, 2.0), Rate(300, 1.0))]
    beside, share = figures_beside("it", turns, Rate(5), unit="messages/s", table=Table.OWN)
    assert (beside.ours, beside.peer, beside.verdict) == (55, 5, "")
    assert (share.ours, share.verdict) == (50, "missed by 17%")
    assert share.note == "55 beside 100 messages/s; CPU each 2.00 beside 1.00 µs"
    _, share = figures_beside("it", [(Rate(60), Rate(100))], Rate(5), unit="messages/s", table=Table.OWN)
    assert (share.verdict, share.note) == ("met", "60 beside 100 messages/s")


def test_output_without_its_total_is_refused() -> None:
    order = document(1, random.Random(1), 100)
    with pytest.raises(AssertionError, match="wrong output 0"):
        compare_totals([order], [order])
    with pytest.raises(AssertionError, match="got 0 outputs for 1 inputs"):
        compare_totals([], [order])


@pytest.mark.parametrize(
    "letters",
    [
        [],
        [LETTER, LETTER],
        [dataclasses.replace(LETTER, key=None)],
        [dataclasses.replace(LETTER, payload=b"another")],
        [dataclasses.replace(LETTER, properties={**LETTER.properties, "EXCEPTION": "KeyError: 'id'"})],
        [dataclasses.replace(LETTER, properties={**LETTER.properties, "trace-id": "2"})],
        [dataclasses.replace(LETTER, properties=dict(list(LETTER.properties.items())[:-1]))],
    ],
)
def test_letters_that_are_not_the_messages_are_refused(letters: list[Letter]) -> None:
    check_letters([LETTER], [MESSAGE], "TRACEBACK")
    with pytest.raises(AssertionError, match="letter"):
        check_letters(letters, [MESSAGE], "TRACEBACK")


def test_lines_of_the_corpus_are_read_from_their_file_as_they_are(tmp_path: Path) -> None:
    lines = corpus_lines(2500)
    write_lines(tmp_path / "lines" / "all.txt", lines)
    assert [line for chunk in chunks_of(tmp_path / "lines" / "all.txt") for line in chunk] == lines
    with pytest.raises(AssertionError, match="wrong line 1"):
        compare_lines([b"x", *lines[1:]], lines)
    with pytest.raises(AssertionError, match="got 2499 messages for 2500 lines"):
        compare_lines(lines[1:], lines)


def test_loop_of_waiting_calls_has_one_of_each_key_at_a_time_and_not_too_many() -> None:
    running: list[int] = []
    most = 0

    async def call(number: int) -> None:
        nonlocal most
        assert all(other % 2 != number % 2 for other in running), "two calls of a key at once"
        running.append(number)
        most = max(most, len(running))
        await asyncio.sleep(0)
        running.remove(number)

    async def run() -> None:
        calls = Calls()
        left = asyncio.Semaphore(0)
        for number in range(2 * CALLS_MAX):
            await calls.start(str(number % 2), lambda number=number: call(number), left.release)  # type: ignore[misc]
        for _ in range(2 * CALLS_MAX):
            await left.acquire()

    asyncio.run(run())
    assert most == 2


def test_functions_are_uploaded_as_a_module_that_needs_nothing_of_ours() -> None:
    assert "from ." not in SOURCE
    exec(compile(SOURCE, "f.py", "exec"), {"__name__": "f"})  # as a worker loads it


@pytest.mark.slow
def test_both_loops_make_of_orders_what_the_function_makes_of_them(tmp_path: Path) -> None:
    orders = [document(number, random.Random(number), 100) for number in range(100)]
    with Plan(seconds=0.1, repeats=1, directory=tmp_path).server("broker") as server:
        url = server.service_url
        hold(url, "orders", "keep")
        publish_entries(url, "orders", orders, 50)
        for module in (OWN_LOOP, OFFICIAL_LOOP):
            hold(url, module, COMPARED)
            with looping(module, "documents", url, "orders", module, "loop" + module):
                compare_totals(read_outputs(url, module, len(orders)), orders, in_order=False)
