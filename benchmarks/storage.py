"""Throughput and CPU cost of storing entries and acknowledgements.

    python benchmarks/storage.py [--directory DIR] [--seconds 3] [--profile]

Each line contains entries per second, MB per second, CPU time of the process per entry (including the kernel), and
entries per group. The number of entries in flight is that of a broker with busy producers.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import shutil
import tempfile
import time
from pathlib import Path

import uvloop
from magnetar.broker.storage import EARLIEST, Position, Storage, StorageConfig, TopicLog


class Load:
    """Keeps a number of appends in flight: each confirmed one starts the next."""

    def __init__(self, log: TopicLog, payload: bytes) -> None:
        self.log = log
        self.payload = payload
        self.confirmed = 0
        self._pending = 0
        self._end_s = 0.0
        self._over = asyncio.Event()

    def done(self, position: Position, error: Exception | None) -> None:
        if error is not None:
            raise error
        self.confirmed += 1
        if time.perf_counter() < self._end_s:
            self.log.append(self.payload, 1, 1, self.done)
        else:
            self._pending -= 1
            if not self._pending:
                self._over.set()

    async def run(self, in_flight: int, seconds: float) -> None:
        self._end_s = time.perf_counter() + seconds
        self._pending = in_flight
        for _ in range(in_flight):
            self.log.append(self.payload, 1, 1, self.done)
        await self._over.wait()


def report(name: str, count: int, size: int, wall_s: float, cpu_s: float, groups: int) -> None:
    print(
        f"{name:42} {count / wall_s:12,.0f}/s {count * size / wall_s / 1e6:8,.0f} MB/s "
        f"{cpu_s / count * 1e6:7.2f} µs CPU {count / max(groups, 1):8,.0f} per group"
    )


async def measure_appends(directory: Path, size: int, in_flight: int, seconds: float, config: StorageConfig) -> None:
    storage = Storage.open(directory, config)
    storage.attach(asyncio.get_running_loop())
    load = Load(storage.open_log("t"), bytes(size))
    await Load(storage.open_log("warm"), bytes(size)).run(in_flight, 0.3)
    groups, wall, cpu = storage._core.journal.groups, time.perf_counter(), time.process_time()
    await load.run(in_flight, seconds)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    delay = f", sync + {config.sync_delay_s * 1000:.0f} ms" if config.sync_delay_s else ""
    name = f"append {size:,} B, {in_flight:,} in flight{delay}"
    report(name, load.confirmed, size, wall, cpu, storage._core.journal.groups - groups)
    await storage.close()


async def measure_acknowledgements(directory: Path, batch: int, seconds: float) -> None:
    storage = Storage.open(directory)
    storage.attach(asyncio.get_running_loop())
    log = storage.open_log("t")
    load = Load(log, b"x")
    await load.run(20_000, seconds / 2)
    cursor = log.open_cursor("sub", EARLIEST)
    positions = []
    position = log.first_position
    while more := await log.load(position, 10_000, 10**8):
        positions += [entry.position for entry in more]
        position = log.next_position(more[-1].position)
    groups, wall, cpu = storage._core.journal.groups, time.perf_counter(), time.process_time()
    for start in range(0, len(positions), batch):
        cursor.acknowledge([(position, None) for position in positions[start : start + batch]])
        if start // batch % 100 == 99:
            await asyncio.sleep(0)
    told: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
    cursor.acknowledge([], told.set_result)
    await told
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    report(f"acknowledge, {batch} a call", len(positions), 0, wall, cpu, storage._core.journal.groups - groups)
    await storage.close()


async def main(options: argparse.Namespace) -> None:
    cases = [(100, 10_000, 0.0), (1024, 10_000, 0.0), (128 * 1024, 200, 0.0), (100, 1, 0.0), (128 * 1024, 200, 0.005)]
    for size, in_flight, delay_s in cases:
        directory = Path(tempfile.mkdtemp(dir=options.directory, prefix="magnetar-bench-"))
        try:
            await measure_appends(directory, size, in_flight, options.seconds, StorageConfig(sync_delay_s=delay_s))
        finally:
            shutil.rmtree(directory)
    for batch in (1, 100):
        directory = Path(tempfile.mkdtemp(dir=options.directory, prefix="magnetar-bench-"))
        try:
            await measure_acknowledgements(directory, batch, options.seconds)
        finally:
            shutil.rmtree(directory)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", help="directory to write to (default: the temporary directory)")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--profile", action="store_true", help="print a profile of the event loop's thread")
    arguments = parser.parse_args()
    if arguments.profile:
        with cProfile.Profile() as profile:
            uvloop.run(main(arguments))
        pstats.Stats(profile).sort_stats("tottime").print_stats(20)
    else:
        uvloop.run(main(arguments))
