"""A real Apache Pulsar as the broker of tests, started by a starter program or already running.

`make test-pulsar PULSAR=<starter>` names a program that starts one; see docs/development/pulsar-tests.md. With
MAGNETAR_TEST_PULSAR_URL and MAGNETAR_TEST_PULSAR_WEB_URL instead, the tests use a running Pulsar of another owner, and
tests that kill or restart the broker are skipped.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import httpx
import psutil
import pytest

from .servers import LOG_TAIL_BYTES, ROOT, ServerFailed, descendants, survivors
from .waiting import wait_for

STARTER = "MAGNETAR_TEST_PULSAR"
URL = "MAGNETAR_TEST_PULSAR_URL"
WEB_URL = "MAGNETAR_TEST_PULSAR_WEB_URL"

START_TIMEOUT_S = 300.0
STARTS_MAX = 3
STOP_TIMEOUT_S = 30.0
TIDY_TIMEOUT_S = 8.0
RESTART_TIMEOUT_S = 200.0
FRESH_TOPICS = 5
KEEP_ALIVE_S = 2
HEAP = "1g"

BROKERS = ["ours", pytest.param("pulsar", marks=pytest.mark.pulsar)]
"""Parameters of a fixture that runs a test with our broker and with Apache Pulsar."""


class Broker(Protocol):
    """The interface of a broker for tests, ours or Apache Pulsar."""

    @property
    def service_url(self) -> str: ...

    @property
    def web_url(self) -> str: ...

    @property
    def directory(self) -> Path: ...

    def start(self) -> None: ...

    def kill(self) -> None: ...

    def restart(self) -> None: ...

    def stop(self) -> object: ...

    def log_tail(self) -> str: ...


@dataclass
class ApachePulsar:
    """An Apache Pulsar that many tests share, each with unique names.

    Attributes:
        directory: directory for data and logs.
        starter: program that starts Pulsar; None if it is already running.
        addresses: addresses of the broker: `brokerServiceUrl` and `webServiceUrl`.
        flags: flags of the starter, in addition to the default ones.
        settings: lines of the broker's configuration.
        headers: headers for requests, if it requires authentication.
    """

    directory: Path
    starter: str | None
    addresses: dict[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ("--functions-worker",)
    settings: tuple[str, ...] = (f"keepAliveIntervalSeconds={KEEP_ALIVE_S}",)
    headers: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    command = ("pulsar",)
    _ports: list[str] = field(default_factory=list)
    _server_pid: int = 0
    _is_tidy: bool = True
    # What counts as the parent's death is that of its thread: a test may restart Pulsar in one that ends with the test.
    _launcher: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1), repr=False)

    @property
    def service_url(self) -> str:
        return self.addresses["brokerServiceUrl"]

    @property
    def web_url(self) -> str:
        return self.addresses["webServiceUrl"]

    @property
    def is_dead(self) -> bool:
        """Whether it was started here and has ended."""
        return self.process is not None and self.process.poll() is not None

    def log_tail(self) -> str:
        """Return the last lines of its log and its starter's."""
        found = [self.directory / "starter.log", *sorted(self.directory.glob("data/logs/*.log"))]
        return "\n".join(
            f"--- {file.name}\n{file.read_bytes()[-LOG_TAIL_BYTES:].decode(errors='replace')}"
            for file in found
            if file.exists()
        )

    def require_starter(self, why: str = "kills the broker") -> None:
        """Skip a test that requires its own Pulsar if there is no starter."""
        if self.starter is None:
            pytest.skip(f"{why}: not on the Pulsar of {URL}; give a starter (make test-pulsar PULSAR=…)")

    def keep_alive_s(self) -> int:
        """Return the keep-alive interval in seconds."""
        return int(self._setting("keepAliveIntervalSeconds"))

    def acknowledges_inside_batches(self) -> bool:
        """Return whether acknowledgements within batches are enabled."""
        return self._setting("acknowledgmentAtBatchIndexLevelEnabled").lower() == "true"

    def _setting(self, name: str) -> str:
        url = f"{self.web_url}/admin/v2/brokers/configuration/runtime"
        return str(httpx.get(url, headers=self.headers, timeout=10).raise_for_status().json()[name])

    def start(self) -> None:
        """Start it, on the previous ports if it ran before, and return when it is ready.

        Raises:
            ServerFailed: it ended, or was not ready in time.
        """
        if self.starter is not None:
            self._launch(*self.flags)
        self._wait_serving()

    def _launch(self, *flags: str) -> None:
        """Run the starter until it reports that Pulsar is ready, which may be too early."""
        assert self.starter is not None
        self._is_tidy = False
        self._ports = self._ports or free_ports(3)
        ready_file = self.directory / "ready.json"
        ready_file.unlink(missing_ok=True)
        broker_port, web_port, bookie_port = self._ports
        arguments = [
            self.starter, "run", "--data", str(self.directory / "data"), "--ready", str(ready_file),
            "--broker-port", broker_port, "--web-port", web_port, "--bookie-port", bookie_port,
            "--heap", HEAP, *flags, *(word for setting in self.settings for word in ("--set", setting)),
        ]  # fmt: skip
        guarded = arguments
        if setpriv := shutil.which("setpriv"):  # however this process ends, it is told to end
            guarded = [setpriv, "--pdeathsig", "TERM", *arguments]
        with (self.directory / "starter.log").open("ab") as log:

            def launch() -> subprocess.Popen[bytes]:
                return subprocess.Popen(guarded, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT)

            self.process = self._launcher.submit(launch).result()
        self._wait(ready_file.exists, f"ready file of {' '.join(arguments)}")
        found = wait_for(lambda: json.loads(ready_file.read_text()), "whole ready file")
        self._server_pid = int(found["pid"])
        self.addresses = {key: str(found[key]) for key in ("brokerServiceUrl", "webServiceUrl")}
        # A starter that looks into the log for its line may find that of the run before.
        self._wait(lambda: self._answers("brokers/ready"), f"Apache Pulsar that is ready at {self.web_url}")

    def _wait_serving(self) -> None:
        self._wait(self.is_serving, f"Apache Pulsar that serves at {self.web_url}")

    def is_serving(self) -> bool:
        """Return whether it stores and reads messages, and creates ledgers for new topics, which takes longer."""
        # `health` publishes a message and reads it.
        paths = ("namespaces/public", "persistent/public/default", "brokers/health")
        return all(self._answers(path) for path in paths) and all(self._makes_topic() for _ in range(FRESH_TOPICS))

    def _answers(self, path: str) -> bool:
        return httpx.get(f"{self.web_url}/admin/v2/{path}", headers=self.headers, timeout=10).status_code == 200

    def _makes_topic(self) -> bool:
        url = f"{self.web_url}/admin/v2/persistent/public/default/{own_name('health')}"
        if not httpx.put(url, headers=self.headers, timeout=10).is_success:
            return False
        return httpx.delete(url, headers=self.headers, timeout=10).is_success

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until it is ready, for at most `START_TIMEOUT_S`; ServerFailed names what is missing."""

        def is_over() -> bool:
            return self.is_dead or condition()

        try:
            wait_for(is_over, what, START_TIMEOUT_S)
        except AssertionError as error:
            raise ServerFailed(f"{error}\n{self.log_tail()}") from error
        if self.process is not None and self.is_dead:
            raise ServerFailed(f"no {what}: it ended with {self.process.returncode}:\n{self.log_tail()}")

    def kill(self) -> None:
        """Kill Pulsar itself with SIGKILL, as in a power failure, and return when it and its starter have ended."""
        assert self.process is not None
        assert self._server_pid in {one.pid for one in descendants(self.process.pid)}
        os.kill(self._server_pid, signal.SIGKILL)
        self.process.wait(STOP_TIMEOUT_S)

    def restart(self) -> None:
        """Restart it with the same ports and data after `kill` or `stop`, and return when it is ready.

        After a kill it is started at least twice: the store of 4.0.7 finds the registration of the killed one, and its
        bookie then registers and is removed a hundred times a second, so that creating ledgers fails now and then. That
        also ends its functions worker during the start, and the whole process with it; so the first start is without
        one. An orderly stop removes the registration.

        Raises:
            ServerFailed: it was not ready within `RESTART_TIMEOUT_S`, after several starts.
        """
        assert self.process is not None
        assert self.process.poll() is not None
        deadline = time.monotonic() + RESTART_TIMEOUT_S
        starts = 0
        while True:
            starts += 1
            was_tidy = self._is_tidy
            try:
                if was_tidy:
                    self.start()
                    return
                self._launch()
            except ServerFailed as error:
                if time.monotonic() > deadline:
                    self.stop()
                    said = f"Apache Pulsar did not come back within {RESTART_TIMEOUT_S:g} s, started {starts} times"
                    raise ServerFailed(f"{said}; the last time: {error}") from error
            # The registration goes within the first second; clients that connect again and again prolong the rest.
            self.stop(TIDY_TIMEOUT_S)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Send SIGTERM, and SIGKILL after half a minute."""
        if self.process is None:
            return
        if not self.is_dead:
            below = descendants(self.process.pid)
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout_s)
            for one in survivors(below, 2):
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
            self._is_tidy = True
        if not self.is_dead:
            self.process.kill()
        self.process.wait(STOP_TIMEOUT_S)


def what_is_wrong(environment: Mapping[str, str]) -> str | None:
    """Return on one line why the settings above cannot work, or None; without side effects."""
    starter, url, web_url = (environment.get(name, "") for name in (STARTER, URL, WEB_URL))
    if starter and shutil.which(starter) is None:
        return f"{STARTER}: {starter} is no program that can be run; name one that starts an Apache Pulsar"
    if starter and (url or web_url):
        return f"{STARTER} starts an Apache Pulsar, {URL} and {WEB_URL} name one that runs: set one or the others"
    if bool(url) != bool(web_url):
        return f"{URL} and {WEB_URL} go together: {WEB_URL if url else URL} is missing"
    return None


@contextlib.contextmanager
def running_pulsar(directory: Path) -> Iterator[ApachePulsar]:
    """Run the Apache Pulsar of the environment; skip the test if there is none."""
    it = of_environment(directory)
    if it is None:
        pytest.skip(f"no Apache Pulsar: neither {STARTER} (make test-pulsar PULSAR=…) nor {URL} is set")
    with started(it):
        yield it


def of_environment(directory: Path) -> ApachePulsar | None:
    """Return the Apache Pulsar of the environment without starting it, or None."""
    starter, url = os.environ.get(STARTER), os.environ.get(URL)
    if not starter and not url:
        return None
    it = ApachePulsar(directory, starter or None)
    if url:
        it.addresses = {"brokerServiceUrl": url.rstrip("/"), "webServiceUrl": os.environ[WEB_URL].rstrip("/")}
    return it


@contextlib.contextmanager
def started(it: ApachePulsar) -> Iterator[None]:
    """Start it, or wait until a running one is ready; stop it at the end if it was started here."""
    try:
        _start_patiently(it)
        yield
    finally:
        it.stop()


def _start_patiently(pulsar: ApachePulsar) -> None:
    """Start it, retrying if its starter gives up, which may be too early for a busy machine."""
    for starts in range(1, STARTS_MAX + 1):
        try:
            pulsar.start()
        except ServerFailed:
            if starts == STARTS_MAX or not pulsar.is_dead:
                raise
        else:
            return


def mortal(pulsar: ApachePulsar) -> ApachePulsar:
    """Return it, running, for a test that kills it; skip the test if it must not be killed."""
    pulsar.require_starter()
    if pulsar.is_dead:
        pulsar.restart()
    return pulsar


def free_ports(count: int) -> list[str]:
    """Return ports that are free now."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [str(probe.getsockname()[1]) for probe in probes]


def own_name(word: str) -> str:
    """Return a name that no other test or earlier run uses: an Apache Pulsar may outlive both."""
    return f"{word}-{uuid.uuid4().hex[:8]}"
