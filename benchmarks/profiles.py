"""Where time is spent: a sampling profile of a server process under each kind of load, for PROFILES.md.

`make profiles ARGS='[NAME …] [--write]'`. Requires py-spy and permission to trace own processes.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import distribution
from pathlib import Path

import psutil

from tests.support.functions import Functions
from tests.support.servers import Server, descendants
from tests.support.waiting import wait_for

from .function_rates import SOURCE, count_for
from .load import Shape, consume, hold, publish
from .machine import short_name
from .plan import Plan
from .real_input import BATCHES, Input, inputs
from .report import PROFILES

SAMPLES_PER_S = 250
TOP = 18
Report = list[str]


def py_spy() -> Path:
    """Return the path of py-spy, which may be in another environment."""
    package = distribution("py-spy")
    return next(Path(str(package.locate_file(file))).resolve() for file in package.files or () if file.name == "py-spy")


class Sampler:
    """Samples one process with py-spy, from `start` to `stop`; only samples on a CPU count."""

    def __init__(self, pid: int, directory: Path) -> None:
        self._file = directory / f"{pid}.raw"
        command = (
            f"record --pid {pid} --format raw --output {self._file} --rate {SAMPLES_PER_S} --duration 600 --threads"
        )
        self._process = subprocess.Popen(
            [str(py_spy()), *command.split()],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def stop(self) -> Report:
        """Stop sampling; return Markdown lines with the most expensive frames, by own and by total time."""
        self._process.send_signal(2)  # SIGINT ends a recording and writes it
        self._process.wait(30)
        own: Counter[str] = Counter()
        whole: Counter[str] = Counter()
        for line in self._file.read_text().splitlines():
            stack, _, count = line.rpartition(" ")
            frames = [shorten(frame) for frame in stack.split(";")]
            own[frames[-1]] += int(count)
            for frame in set(frames):
                whole[frame] += int(count)
        total = sum(own.values()) or 1
        rows = [f"| {n / total:.0%} | {whole[f] / total:.0%} | `{f}` |" for f, n in own.most_common(TOP)]
        heavy = [f"| | {n / total:.0%} | `{f}` |" for f, n in whole.most_common(TOP) if own[f] / total < 0.01]
        return ["| own | with callees | frame |", "| --- | --- | --- |", *rows, *heavy, ""]


def shorten(frame: str) -> str:
    """Shorten a frame to `function (file)`, without line numbers and the path of the environment."""
    frame = re.sub(r":\d+\)$", ")", frame)
    return re.sub(r"\(.*/((?:[\w-]+/){0,2}[\w.-]+)\)$", r"(\1)", frame)


@contextlib.contextmanager
def sampled(pid: int, directory: Path, title: str, report: Report) -> Iterator[None]:
    """Add the profile of a process during the context to the report, with the kernel's resource statistics."""
    process = psutil.Process(pid)
    cpu, io = process.cpu_times(), process.io_counters()
    sampler = Sampler(pid, directory)
    try:
        yield
    finally:
        cpu_now, io_now = process.cpu_times(), process.io_counters()
        used = (
            f"{cpu_now.user - cpu.user:.1f} s of CPU in user mode, {cpu_now.system - cpu.system:.1f} s in the kernel,"
            f" {(io_now.write_bytes - io.write_bytes) / 1e6:,.0f} MB written to disk."
        )
        report += [f"### {title}", "", used, "", *sampler.stop()]


def profile_publish(plan: Plan, report: Report) -> None:
    for shape in (Shape(1000, 100), Shape(1000, 1024), Shape(1, 100)):
        title = f"broker, publish, batches of {shape.batch}, {shape.size_bytes} B"
        with plan.server("broker") as server:
            publish(server.service_url, "warm", shape, 0.3)
            with sampled(server.pid, plan.directory, title, report):
                publish(server.service_url, "t", shape, plan.seconds)


def profile_consume(plan: Plan, report: Report) -> None:
    for batch in (1000, 1):
        with plan.server("broker") as server:
            hold(server.service_url, "t", "s")
            count, _ = publish(server.service_url, "t", Shape(batch, 100), plan.seconds)
            with sampled(server.pid, plan.directory, f"broker, consume, batches of {batch}, 100 B", report):
                consume(server.service_url, "t", "s", count)


def profile_client(plan: Plan, report: Report) -> None:
    """Profile the publishing client: this process generates load in another thread while py-spy samples it."""
    for batch in (1000, 1):
        with plan.server("broker") as server:
            load = threading.Thread(target=publish, args=(server.service_url, "t", Shape(batch, 100), plan.seconds))
            with sampled(os.getpid(), plan.directory, f"our client, publish, batches of {batch}, 100 B", report):
                load.start()
                load.join()


def profile_functions(plan: Plan, report: Report) -> None:
    for batch in BATCHES:
        for given in inputs(plan, batch):
            with plan.server("standalone") as server, Functions(server.web_url) as functions:
                _profile_function(plan, server, functions, given, report)


def _profile_function(plan: Plan, server: Server, functions: Functions, given: Input, report: Report) -> None:
    count = count_for(given, plan.seconds)
    hold(server.service_url, "in", "keep")
    given.fill(server.service_url, "in", count)
    config = {
        "className": "f.process",
        "inputs": ["in"],
        "output": "out",
        "subscriptionPosition": "Earliest",
        "runtimeEnv": "process",
    }
    functions.create("f", SOURCE, config).raise_for_status()
    instance = wait_for(
        lambda: next((p for p in descendants(server.pid) if short_name(p).startswith("instance")), None),
        "function process",
    )
    title = f"function, {given.name}, input batches of {given.batch}"
    with (
        sampled(instance.pid, plan.directory, f"instance, {title}", report),
        sampled(server.pid, plan.directory, f"broker, {title}", report),
    ):
        wait_for(lambda: functions.status("f")["numReceived"] >= 0.9 * count, "processed input", 60)


PROFILES_OF: dict[str, Callable[[Plan, Report], None]] = {
    "publish": profile_publish,
    "consume": profile_consume,
    "client": profile_client,
    "functions": profile_functions,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profiles", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"profiles to measure, of {', '.join(PROFILES_OF)} (default: all)"
    )
    parser.add_argument("--write", action="store_true", help="write benchmarks/PROFILES.md")
    parser.add_argument("--seconds", type=float, default=4.0)
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="magnetar-profile-"))
    report: Report = []
    try:
        for name in arguments.names or PROFILES_OF:
            PROFILES_OF[name](Plan(arguments.seconds, 1, directory), report)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    text = (
        "# Where time is spent\n\nWritten by `make profiles ARGS=--write`: py-spy samples of all threads running\non"
        " a CPU. Compiled modules do not appear as frames: their time is attributed to the caller.\n\n"
    )
    text += "\n".join(report)
    print(text)
    if arguments.write:
        PROFILES.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
