"""One million keys: recovery time of the state store after `kill -9`, read latency of a key, and memory."""

from __future__ import annotations

import contextlib
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
from magnetar.state.client import TableClient
from magnetar.state.values import Put

from tests.support.functions import Functions
from tests.support.servers import Server, descendants
from tests.support.waiting import wait_for

from .figure import Figure
from .load import hold, publish_entries
from .machine import short_name, usage
from .plan import Plan

KEYS = 1_000_000
AT_ONCE = 20_000
VALUE = b"fifty bytes of text, as a small value usually is.."
READS = 1000  # keys in one read
SHOWN = 200
OPEN_S, SHOWN_MS, MEMORY_MIB = 5.0, 50.0, 200.0
NAME = "million"
SOURCE = "def process(text, context):\n    context.put_state(text, text)\n"


def measure_state_size(plan: Plan) -> Iterator[Figure]:
    """Measure filling a function's table and querying it, and restarting the killed store on the same files."""
    with plan.server("standalone") as server:
        hold(server.service_url, f"{NAME}-in", f"public/default/{NAME}")
        config = {"className": f"{NAME}.process", "inputs": [f"{NAME}-in"], "subscriptionPosition": "Earliest"}
        with Functions(server.web_url) as functions:
            functions.create(NAME, SOURCE, config).raise_for_status()
            took_s = _fill(server)
            shown_ms = _shown_ms(server)
            (store,) = [one for one in descendants(server.pid) if "state-store" in short_name(one)]
            pss_mib = usage(store).pss_mib
            size_mib = sum(file.stat().st_size for file in (server.directory / "data" / "state").iterdir()) / 2**20
            store.kill()  # before its supervisor ends, as the store might then shut down cleanly
            server.kill()
            psutil.wait_procs([store], timeout=10)
            opened_s, after_mib = _reopened(server.directory / "data" / "state", plan.directory)
    yield Figure(
        name="a million keys: start of the state store after kill -9",
        ours=opened_s,
        unit="s",
        target=OPEN_S,
        more_is_better=False,
        note=f"process start and imports included; {size_mib:.0f} MiB of files, filled in {took_s:.0f} s",
    )
    yield Figure(
        name="a million keys: querystate over REST",
        ours=statistics.median(shown_ms),
        unit="ms",
        target=SHOWN_MS,
        more_is_better=False,
        note=f"worst of {SHOWN} random keys: {max(shown_ms):.1f} ms",
    )
    yield Figure(
        name="a million keys: memory of the state store (PSS)",
        ours=max(pss_mib, after_mib),
        unit="MiB",
        target=MEMORY_MIB,
        more_is_better=False,
        note=f"{pss_mib:.0f} after filling and reading, {after_mib:.0f} after the restart and {READS:,} reads",
    )


def _fill(server: Server) -> float:
    """Let the function create its table, then fill it; return the seconds."""
    publish_entries(server.service_url, f"{NAME}-in", [b"first"], 1)
    with _tables(str(server.addresses["stateStorageServiceUrl"])) as tables:
        (table,) = wait_for(lambda: tables.tables(f"public/default/{NAME}@"), "table of the function")
        writer = os.urandom(16)
        began = time.perf_counter()
        for sequence, begin in enumerate(range(0, KEYS, AT_ONCE), 1):
            tables.apply(
                table, writer, sequence, [Put(_key(number), VALUE) for number in range(begin, begin + AT_ONCE)]
            )
        return time.perf_counter() - began


def _shown_ms(server: Server) -> list[float]:
    """Return the latencies of queries for random keys, as `querystate` makes them, in milliseconds."""
    rng = random.Random(1)
    found = []
    with httpx.Client(base_url=f"{server.web_url}/admin/v3/functions/public/default/{NAME}/state/") as http:
        for _ in range(SHOWN):
            key = _key(rng.randrange(KEYS)).decode()
            began = time.perf_counter()
            answer = http.get(key).raise_for_status().json()
            found.append((time.perf_counter() - began) * 1000)
            assert answer["stringValue"] == VALUE.decode()
    return found


def _reopened(files: Path, directory: Path) -> tuple[float, float]:
    """Start a store on the files; return the seconds until it has returned a key, and its memory after some reads."""
    rng = random.Random(2)
    store = Server(("state-store", "--data-dir", str(files)), Path(tempfile.mkdtemp(prefix="again-", dir=directory)))
    began = time.perf_counter()
    try:
        store.start()
        with _tables(str(store.addresses["stateStorageServiceUrl"])) as tables:
            (table,) = tables.tables(f"public/default/{NAME}@")
            tables.read(table, [_key(1)])
            took_s = time.perf_counter() - began
            values = tables.read(table, [_key(rng.randrange(KEYS)) for _ in range(READS)])
        assert all(value is not None and value.data == VALUE for value in values)
        return took_s, usage(psutil.Process(store.pid)).pss_mib
    finally:
        store.stop()


def _key(number: int) -> bytes:
    return b"key%010d" % number


@contextlib.contextmanager
def _tables(url: str) -> Iterator[TableClient]:
    tables = TableClient(url)
    try:
        yield tables
    finally:
        tables.close()
