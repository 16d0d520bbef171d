"""Many keys in one table of the state store: filling, changing, reading, restarting, memory and disk."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Iterator

import psutil
from magnetar.state.client import TableClient
from magnetar.state.values import Put

from tests.support.servers import Server

from .figure import Figure
from .growth import grown
from .machine import usage
from .plan import Plan

SIZES, QUICK_SIZES = (10_000, 100_000, 1_000_000, 10_000_000), (1000, 10_000)
AT_ONCE = 20_000
CALLS, KEYS_OF_A_CALL = 50, 1000
VALUE = b"fifty bytes of text, as a small value usually is.."
TABLE = "public/default/growth"
TIMEOUT_S = 60.0


def measure_growth_state(plan: Plan) -> Iterator[Figure]:
    """Measure filling a table up to each size, changing and reading random keys, and restarting the killed store."""
    counted, filled = "keys", 0
    with plan.server("state-store") as server:
        writes = _Writes()
        for size in QUICK_SIZES if plan.is_quick else SIZES:
            with _tables(server) as tables:
                began = time.perf_counter()
                for start in range(filled, size, AT_ONCE):
                    writes.put(tables, range(start, min(size, start + AT_ONCE)))
                yield grown(counted, size, "fill", (size - filled) / (time.perf_counter() - began), "keys/s")
                filled = size
                chance = random.Random(size)
                chosen = [[chance.randrange(size) for _ in range(KEYS_OF_A_CALL)] for _ in range(CALLS)]
                began = time.perf_counter()
                for numbers in chosen:
                    writes.put(tables, numbers)
                yield grown(counted, size, "put at random", _rate(began), "keys/s")
                began = time.perf_counter()
                for numbers in chosen:
                    values = tables.read(TABLE, [_key(number) for number in numbers], TIMEOUT_S)
                    assert all(value is not None and value.data == VALUE for value in values)
                yield grown(counted, size, "get at random", _rate(began), "keys/s")
            yield grown(counted, size, "memory (PSS)", usage(psutil.Process(server.pid)).pss_mib, "MiB")
            files = (file for file in (server.directory / "data").rglob("*") if file.is_file())
            yield grown(counted, size, "disk", sum(file.stat().st_size for file in files) / 2**20, "MiB")
            server.kill()
            began = time.perf_counter()
            server.start()
            with _tables(server) as tables:
                assert tables.read(TABLE, [_key(size - 1)], TIMEOUT_S)[0] is not None
            yield grown(counted, size, "start after kill -9", time.perf_counter() - began, "s")


def _rate(began: float) -> float:
    return CALLS * KEYS_OF_A_CALL / (time.perf_counter() - began)


def _key(number: int) -> bytes:
    return b"key%010d" % number


class _Writes:
    """A writer of the table."""

    def __init__(self) -> None:
        self._writer = os.urandom(16)
        self._sequence = 0

    def put(self, tables: TableClient, numbers: range | list[int]) -> None:
        self._sequence += 1
        changes = [Put(_key(number), VALUE) for number in numbers]
        tables.apply(TABLE, self._writer, self._sequence, changes, TIMEOUT_S)


@contextlib.contextmanager
def _tables(server: Server) -> Iterator[TableClient]:
    tables = TableClient(str(server.addresses["stateStorageServiceUrl"]))
    try:
        yield tables
    finally:
        tables.close()
