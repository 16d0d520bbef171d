"""The load generator of Pulsar's Go client, which publishes as fast as a broker accepts messages."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.connectors.servers.maven import CACHE
from tests.support.servers import LOG_TAIL_BYTES
from tests.support.waiting import wait_for

from .function_rates import Counter

MODULE = "github.com/apache/pulsar-client-go/perf"
VERSION = "v0.16.0"
BUILD_TIMEOUT_S = 900.0
QUEUE = 10_000  # messages without receipt; its default of 1000 is one batch
WARM_S = 2.0
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Load:
    """The load to generate.

    Attributes:
        size_bytes: size of a message.
        batch: maximum number of messages per entry.
    """

    size_bytes: int
    batch: int


def program() -> Path:
    """Build the program with Go, if not yet built, and return its path.

    Raises:
        RuntimeError: Go is missing, or the build failed.
    """
    directory = CACHE / f"pulsar-client-go-perf-{VERSION}"
    built = directory / "perf"
    if built.exists():
        return built
    if shutil.which("go") is None:
        raise RuntimeError(f"go, required to build {MODULE}@{VERSION}, is missing: install Go 1.23 or later")
    directory.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["go", "install", f"{MODULE}@{VERSION}"], env={**os.environ, "GOBIN": str(directory)}, cwd=directory,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=BUILD_TIMEOUT_S,
    )  # fmt: skip
    if done.returncode or not built.exists():
        raise RuntimeError(f"go install {MODULE}@{VERSION} exited with code {done.returncode}:\n{done.stderr[-2000:]}")
    return built


def rate(service_url: str, web_url: str, topic: str, load: Load, seconds: float, log: Path) -> float:
    """Publish for some seconds after a warm-up; return messages per second as counted by the broker.

    Raises:
        RuntimeError: the generator exited unexpectedly; the message contains the end of its output.
    """
    with _generating(service_url, topic, load, log) as process, Counter(web_url, topic) as counter:
        wait_for(lambda: process.poll() is not None or counter.read() > 0, f"messages in {topic}", START_TIMEOUT_S)
        time.sleep(WARM_S)
        began, first = time.perf_counter(), counter.read()
        time.sleep(seconds)
        ended, last = time.perf_counter(), counter.read()
        if process.poll() is not None:
            tail = log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
            raise RuntimeError(f"the load generator exited with code {process.returncode}:\n{tail}")
    return (last - first) / (ended - began)


@contextlib.contextmanager
def _generating(service_url: str, topic: str, load: Load, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [
        str(program()), "produce", "--rate", "0", "--size", str(load.size_bytes), "--queue-size", str(QUEUE),
        "--batching-num-messages", str(load.batch), "--metrics", "-1", "--service-url", service_url, topic,
    ]  # fmt: skip
    if setpriv := shutil.which("setpriv"):  # ensures that it is stopped when this process ends
        command = [setpriv, "--pdeathsig", "TERM", *command]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_TIMEOUT_S)
