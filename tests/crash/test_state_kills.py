"""Functions with state while their processes are killed: counts are never too low, and status says what is missing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

import httpx
import psutil
import pytest
from magnetar.client.client import AsyncClient
from magnetar.state.client import TableClient

from tests.support.calm import Calm
from tests.support.exact import all_messages
from tests.support.functions import Functions
from tests.support.servers import Server, descendants
from tests.support.waiting import wait_for

from .feed import ENTRY_MESSAGES, SMALL_ENTRIES, Feed
from .mayhem import StatefulCluster
from .stateful_run import WORD_COUNT, WORDS, Run, counters_of, recount, sentence

pytestmark = [pytest.mark.timeout(420)]

KINDS = ["instance", "worker", "store", "broker", "frozen instance"]
SAID_S = 2.0
CLEARED_S = 60.0


@pytest.mark.parametrize(
    ("seed", "kills", "messages"),
    [
        pytest.param(1, ["instance", "store"], 20_000, id="few", marks=pytest.mark.slow),
        pytest.param(2, [*KINDS * 2, "frozen worker"], 200_000, id="many", marks=[pytest.mark.slow, pytest.mark.crash]),
        pytest.param(3, ["store"] * 10, 150_000, id="store only", marks=[pytest.mark.slow, pytest.mark.crash]),
    ],
)
def test_counts_at_least_once_are_never_too_low(
    stateful: StatefulCluster, seed: int, kills: list[str], messages: int
) -> None:
    sizes = SMALL_ENTRIES if set(kills) == {"store"} else ENTRY_MESSAGES
    run = Run(stateful, f"least{seed}", seed, WORD_COUNT, sizes, processingGuarantees="ATLEAST_ONCE")
    try:
        run.survive(kills, messages)
        expected = recount([text for texts in run.input_texts() for text in texts])
        found = counters_of(run, sorted(expected))
        low = {key: (found[key], times) for key, times in expected.items() if found[key] < times}
        assert not low, f"{len(low)} of {len(found)} counters are too low (found, true): {list(low.items())[:10]}"
        if set(kills) == {"store"}:
            assert found == expected, "a repeated call was counted twice"
        print(f"counted twice: {found['all'] - expected['all']} of {expected['all']} messages")
    finally:
        run.close()


NAME = "words"


def state_store(standalone: Server) -> psutil.Process | None:
    """The child that keeps state."""
    return next((one for one in descendants(standalone.pid) if " state-store " in f"{title(one)} "), None)


def title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline()) if process.status() != psutil.STATUS_ZOMBIE else ""
    except psutil.NoSuchProcess:
        return ""


@contextlib.contextmanager
def away(standalone: Server, how: str) -> Iterator[Callable[[], None]]:
    """Keep the state store away, if the result is called often; at the end it may come back."""
    first = wait_for(lambda: state_store(standalone), "state store")

    def strike() -> None:
        if how == "frozen":
            first.suspend()
        elif (found := state_store(standalone)) is not None:
            found.kill()

    try:
        yield strike
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            first.resume()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "guarantee"),
    [
        ("killed", "EFFECTIVELY_ONCE"),
        ("frozen", "ATLEAST_ONCE"),
        pytest.param("killed", "ATLEAST_ONCE", marks=pytest.mark.crash),
        pytest.param("frozen", "EFFECTIVELY_ONCE", marks=pytest.mark.crash),
    ],
)
def test_status_says_that_the_state_store_is_away_and_nothing_is_lost(
    standalone: Server, how: str, guarantee: str
) -> None:
    state_url = str(standalone.addresses["stateStorageServiceUrl"])
    topic = f"persistent://public/default/{NAME}-in"
    httpx.put(f"{standalone.web_url}/admin/v2/persistent/public/default/{NAME}-in", timeout=60).raise_for_status()
    httpx.put(
        f"{standalone.web_url}/admin/v2/persistent/public/default/{NAME}-in/subscription/all", timeout=60
    ).raise_for_status()
    config = {"className": f"{NAME}.process", "inputs": [topic], "subscriptionPosition": "Earliest"}
    tables = TableClient(state_url)
    feed = Feed(standalone.service_url, [topic], sentence, 1)
    try:
        with Functions(standalone.web_url) as functions:
            functions.create(NAME, WORD_COUNT, {**config, "processingGuarantees": guarantee}).raise_for_status()
            feed.allow(5_000)
            wait_for(lambda: functions.status(NAME)["numSuccessfullyProcessed"], "processed messages")
            feed.allow(50_000)
            gone = Calm()
            with away(standalone, how) as strike:

                def is_said() -> str | None:
                    strike()
                    error = str(functions.status(NAME)["error"])
                    return error if state_url in error else None

                said = wait_for(is_said, "error in status")
                took, calm_s = str(gone), gone.calm_s
            back = Calm()
            wait_for(lambda: not functions.status(NAME)["error"], "status without error", CLEARED_S)
            print(f"said after {took}, cleared {back} after it may come back: {said}")
            assert calm_s < SAID_S, took
            feed.finish()
            found = found_in(tables)
            wait_for(lambda: found("all") == 50_000, "all messages counted", CLEARED_S)
            assert functions.status(NAME)["numRestarts"] == 0
            texts = [text.decode() for text in asyncio.run(stored(standalone.service_url, topic))]
            # The instance lived on: each of its calls that were repeated counts once, whatever the guarantee.
            expected = recount(texts)
            assert {key: found(key) for key in [*WORDS, "all"]} == {key: expected[key] for key in [*WORDS, "all"]}
    finally:
        feed.cancel()
        tables.close()


def found_in(tables: TableClient) -> Callable[[str], int]:
    def counter(key: str) -> int:
        (table,) = tables.tables(f"public/default/{NAME}@")
        (value,) = tables.read(table, [key.encode()])
        return 0 if value is None else value.number or 0

    return counter


async def stored(service_url: str, topic: str) -> list[bytes]:
    async with AsyncClient(service_url) as client:
        return await all_messages(client, topic)
