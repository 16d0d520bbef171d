"""Random operations on cursors of each engine, compared with a set of acknowledged entries."""

from __future__ import annotations

import asyncio
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from magnetar.broker.storage.port import EARLIEST
from magnetar.wire.position import Position

from .engine import ENGINES, append, created

STEPS = st.lists(st.sampled_from(["append", "append", "ack", "ack", "ack up to", "reset", "close"]), max_size=60)


async def compare(engine: str, steps: list[str], seed: int) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory:
        async with ENGINES[engine](Path(directory) / "store", lambda: 1.0) as store:
            log = await created(store, "persistent://public/default/t", 2)
            positions = [log.position_behind(EARLIEST, number + 1) for number in range(2)]
            cursors = [log.open_cursor("durable", EARLIEST), log.memory_cursor("memory", EARLIEST)]
            acked: set[Position] = set()
            for step in steps:
                position = rng.choice(positions)
                if step == "append":
                    positions.append(await append(log, b"x"))
                elif step == "close":
                    log.close_ledger()
                elif step == "ack":
                    chosen = rng.sample(positions, rng.randint(1, len(positions)))
                    acked.update(chosen)
                    for cursor in cursors:
                        cursor.acknowledge([(one, None) for one in chosen])
                elif step == "ack up to":
                    acked.update(one for one in positions if one <= position)
                    for cursor in cursors:
                        cursor.acknowledge_up_to(position)
                else:
                    acked = {one for one in positions if one < position}
                    for cursor in cursors:
                        await cursor.reset(position)
                for cursor in cursors:
                    assert {one for one in positions if cursor.is_acknowledged(one)} == acked, step
                    assert cursor.backlog_entries == len(positions) - len(acked)
                    wanted = [one for one in positions if one not in acked]
                    ahead = cursor.next_unacknowledged(EARLIEST)
                    assert ahead == wanted[0] if wanted else ahead > positions[-1]
                    first = wanted[0] if wanted else None
                    assert all(one <= cursor.mark_delete for one in positions if first is None or one < first)
                    above = {one for one in acked if one > cursor.mark_delete}
                    runs = cursor.acknowledged_ranges()
                    assert {one for one in positions if any(a <= one <= b for a, b in runs)} == above
                    assert len(runs) == cursor.acknowledged_range_count
                    assert cursor.has_holes == bool(above)


@pytest.mark.parametrize("engine", list(ENGINES))
@settings(max_examples=60, deadline=None)
@given(steps=STEPS, seed=st.integers(0, 2**32))
def test_acknowledgements_match_a_set(engine: str, steps: list[str], seed: int) -> None:
    asyncio.run(compare(engine, steps, seed))
