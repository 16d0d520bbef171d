"""`magnetar produce --lines` on a large file, compared with other methods of sending the lines of a file.

The file contains the lines of Python's standard library, like `magnetar demo`, repeated as often as needed. Commands
and loops are timed from start to end, including interpreter start and connection. The demo's publisher, the source
`file`, never ends, so its rate is a slope. Every topic is read back and compared with the file, line by line.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from magnetar.cli.demo.connectors import SOURCE, SOURCES, create_source
from magnetar.cli.demo.corpus import Corpus, standard_library
from magnetar.cli.rest import Admin

from tests.support.servers import COMMAND, ROOT, Server

from .figure import Figure, Table
from .function_rates import Counter
from .load import COMPARED, hold, read_outputs
from .loops import OFFICIAL_LOOP, OWN_LOOP, Rate, command, figures_beside
from .plan import Plan

LINES, QUICK_LINES = 1_500_000, 300_000
OFFICIAL_SHARE = 10
"""Ratio of all lines to those sent by the loop on the official client."""


def measure_produce(plan: Plan) -> Iterator[Figure]:
    """Measure line rates of the command, of loops and of the demo's source."""
    lines = corpus_lines(QUICK_LINES if plan.is_quick else LINES)
    directory = plan.directory / "lines"
    whole, short = directory / "whole" / "lines.txt", directory / "short" / "lines.txt"
    turns = []
    with plan.server("standalone") as server:
        fewer = lines[: len(lines) // OFFICIAL_SHARE]
        for file, content in ((whole, lines), (short, fewer)):
            write_lines(file, content)
        for turn in range(plan.repeats):
            ours = _command(server, _produce(server, f"ours{turn}", whole), f"ours{turn}", lines)
            own_loop = command(OWN_LOOP, "lines", server.service_url, str(whole), f"loop{turn}", "")
            turns.append((ours, _command(server, own_loop, f"loop{turn}", lines)))
        official_loop = command(OFFICIAL_LOOP, "lines", server.service_url, str(short), "official", "")
        official = _command(server, official_loop, "official", fewer)
        source = _source(server, whole, lines)
    name = f"produce --lines, {len(lines):,} lines of {sum(map(len, lines)) / len(lines):.0f} B on the average"
    note = "the whole command, its start included"
    yield from figures_beside(name, turns, official, unit="lines/s", table=Table.OWN, note=note)
    yield Figure(
        name=f"{name}, over the demo's publisher",
        ours=turns[0][0].rate / source,
        unit="times",
        note=f"the source file sends {source:,.0f} lines/s, each with the file's name as key",
        table=Table.OWN,
    )


def corpus_lines(count: int) -> list[bytes]:
    """Return lines of the demo's corpus, repeated as needed, without those that contain a carriage return."""
    lines: list[bytes] = []
    while len(lines) < count:
        lines += [line for file in Corpus(standard_library()) for line in file.lines if b"\r" not in line]
    return lines[:count]


def write_lines(file: Path, lines: Sequence[bytes]) -> None:
    """Write lines to a file."""
    file.parent.mkdir(parents=True)
    file.write_bytes(b"".join(line + b"\n" for line in lines))


def _produce(server: Server, topic: str, file: Path) -> list[str]:
    return [*COMMAND, "--service-url", server.service_url, "produce", topic, "--lines", str(file)]


def _command(server: Server, words: Sequence[str], topic: str, lines: Sequence[bytes]) -> Rate:
    """Return the rate of a command that sends lines to a topic."""
    hold(server.service_url, topic, COMPARED)
    began = time.perf_counter()
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    took_s = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(words)} exited with code {process.returncode}")
    compare_lines(read_outputs(server.service_url, topic, len(lines)), lines)
    return Rate(len(lines) / took_s, (used.ru_utime + used.ru_stime) / len(lines) * 1e6)


def _source(server: Server, file: Path, lines: Sequence[bytes]) -> float:
    """Return lines per second of the demo's source."""
    topic = "source"
    hold(server.service_url, topic, COMPARED)
    rest = Admin(server.web_url)
    with Counter(server.web_url, topic) as counter:
        create_source(rest, topic, file.parent)
        rate = counter.slope(len(lines), server, "").rate
    rest.delete(f"{SOURCES}/{SOURCE}")
    compare_lines(read_outputs(server.service_url, topic, len(lines)), lines)
    return rate


def compare_lines(found: Sequence[bytes], lines: Sequence[bytes]) -> None:
    """Compare the messages in a topic with the sent lines.

    Raises:
        AssertionError: a line is wrong or missing.
    """
    if len(found) != len(lines):
        raise AssertionError(f"got {len(found)} messages for {len(lines)} lines")
    for number, (message, line) in enumerate(zip(found, lines, strict=True), 1):
        if message != line:
            raise AssertionError(f"wrong line {number}, {message[:120]!r}: expected {line[:120]!r}")
