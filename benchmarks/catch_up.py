"""Reading a backlog that the broker has not cached, compared with reading the same files directly.

The backlog is four times the size of the broker's caches. Before each measurement on either side, the broker is
restarted, so that its caches are empty, and the pages of the ledger files are dropped from the page cache
(`posix_fadvise` with ``DONTNEED``, after a sync); this is verified by reading without waiting for the disk. So both
sides read from the disk, unless the hypervisor has its own cache. Both rates count the bytes of these files. The client
does not decode the entries, as decoding would take longer than the broker takes to read.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import uvloop

from tests.support.servers import Server

from .broker_rates import read_all
from .figure import Figure, Table
from .load import hold
from .machine import cpu_s
from .plan import Plan
from .real_input import PLAIN, official_input

CACHE_MIB = 64 + 16
"""Size of the broker's caches: the newest entries of all topics, and read-ahead."""
BACKLOG_MIB, QUICK_BACKLOG_MIB = 4 * CACHE_MIB, CACHE_MIB + CACHE_MIB // 2
BATCHES = (1000, 50)
READ_BYTES = 1024 * 1024
"""Bytes per call of the plain read."""
PROBES = 64
"""Number of offsets in a file at which to check whether it is in memory."""


def measure_catch_up(plan: Plan) -> Iterator[Figure]:
    """Measure reading an uncached backlog through the broker, and its files directly."""
    for batch in BATCHES:
        yield _figure(plan, batch)


def _figure(plan: Plan, batch: int) -> Figure:
    given = official_input(plan, PLAIN, batch)
    size_bytes = (QUICK_BACKLOG_MIB if plan.is_quick else BACKLOG_MIB) * 2**20
    written = given.entries[0]
    count = size_bytes // len(written.section) * batch
    ours, plain, cpu = [], [], []
    with plan.server("broker") as server:
        names = [f"s{i}" for i in range(plan.repeats)]
        hold(server.service_url, "backlog", *names)
        given.fill(server.service_url, "backlog", count)
        for name in names:
            files, total = _cold(server)
            began = time.perf_counter()
            _read_plainly(files)
            plain.append(total / (time.perf_counter() - began) / 1e6)
            files, total = _cold(server)
            before, began = cpu_s(server.pid), time.perf_counter()
            uvloop.run(read_all(server.service_url, "backlog", [name], count))
            ours.append(total / (time.perf_counter() - began) / 1e6)
            cpu.append((cpu_s(server.pid) - before) / total * 1e9)
    return Figure(
        name=f"catch-up read of {size_bytes / 2**20:.0f} MiB that no cache holds, batches of {batch}",
        ours=statistics.median(ours),
        unit="MB/s",
        peer=statistics.median(plain),
        peer_name="sequential read of the same files",
        note=f"{given.name} messages of 100 B; broker {statistics.median(cpu):.2f} ms CPU a MB",
        table=Table.OFFICIAL,
    )


def _cold(server: Server) -> tuple[list[Path], int]:
    """Clear the broker's and the kernel's caches of the ledgers; return their files and total size."""
    server.stop()
    files = sorted((server.directory / "data").glob("**/*.ledger"), key=lambda path: int(path.stem))
    for path in files:
        drop_pages(path)
    server.start()
    return files, sum(path.stat().st_size for path in files)


def drop_pages(path: Path) -> None:
    """Drop a file from the page cache.

    Raises:
        RuntimeError: some pages are still cached, as in a file system without a disk.
    """
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        held = sum(_is_in_memory(file, offset) for offset in _places(os.fstat(file).st_size))
    finally:
        os.close(file)
    if held:
        raise RuntimeError(f"{held} of {PROBES} probed offsets of {path} remain in memory: use a --directory on a disk")


def _places(size: int) -> range:
    return range(0, size, max(1, size // PROBES))


def _is_in_memory(file: int, offset: int) -> bool:
    """Return whether a byte can be read without waiting for a disk."""
    try:
        return os.preadv(file, [bytearray(1)], offset, os.RWF_NOWAIT) > 0
    except BlockingIOError:
        return False


def _read_plainly(files: list[Path]) -> None:
    buffer = bytearray(READ_BYTES)
    for path in files:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
