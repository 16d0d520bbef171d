"""A real Apache Pulsar as the broker of tests: one that a starter runs for us, or one that runs already.

`make test-pulsar PULSAR=<starter>` names a program that starts one, see docs/development/pulsar-tests.md. With
MAGNETAR_TEST_PULSAR_URL and MAGNETAR_TEST_PULSAR_WEB_URL in its place the tests run on a Pulsar that is not theirs;
those that kill or restart the broker are skipped then.
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
"""Parameters of a fixture that gives our broker to a test once, and Apache Pulsar once more."""


class Broker(Protocol):
    """What tests ask of a broker, ours or not."""

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
    """One Apache Pulsar, shared by many tests: each takes names of its own.

    Attributes:
        directory: data and logs.
        starter: what starts it; None if it runs already.
        addresses: where it listens: `brokerServiceUrl` and `webServiceUrl`.
        flags: of the starter, beyond those that it always gets.
        settings: lines of the broker's configuration.
        headers: that requests need, where it asks who they come from.
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
        """The ends of what it and its starter wrote."""
        found = [self.directory / "starter.log", *sorted(self.directory.glob("data/logs/*.log"))]
        return "\n".join(
            f"--- {file.name}\n{file.read_bytes()[-LOG_TAIL_BYTES:].decode(errors='replace')}"
            for file in found
            if file.exists()
        )

    def require_starter(self, why: str = "kills the broker") -> None:
        """Skip a test that needs a Pulsar of its own."""
        if self.starter is None:
            pytest.skip(f"{why}: not on the Pulsar of {URL}; give a starter (make test-pulsar PULSAR=…)")

    def keep_alive_s(self) -> int:
        """How often it asks a silent client for a sign of life."""
        return int(self._setting("keepAliveIntervalSeconds"))

    def acknowledges_inside_batches(self) -> bool:
        """Whether it remembers which messages of an entry are acknowledged."""
        return self._setting("acknowledgmentAtBatchIndexLevelEnabled").lower() == "true"

    def _setting(self, name: str) -> str:
        url = f"{self.web_url}/admin/v2/brokers/configuration/runtime"
        return str(httpx.get(url, headers=self.headers, timeout=10).raise_for_status().json()[name])

    def start(self) -> None:
        """Start it, on the ports of the last time if there was one; returns once it serves.

        Raises:
            ServerFailed: it ended, or did not serve in time.
        """
        if self.starter is not None:
            self._launch(*self.flags)
        self._wait_serving()

    def _launch(self, *flags: str) -> None:
        """Return once a starter says that Pulsar is ready, which may be too early."""
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
        """Whether it stores and reads messages, and makes ledgers for new topics; ready is not yet able."""
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
        """Wait for it as long as Pulsar lives, `START_TIMEOUT_S` at most; `ServerFailed` says what is missing."""

        def is_over() -> bool:
            return self.is_dead or condition()

        try:
            wait_for(is_over, what, START_TIMEOUT_S)
        except AssertionError as error:
            raise ServerFailed(f"{error}\n{self.log_tail()}") from error
        if self.process is not None and self.is_dead:
            raise ServerFailed(f"no {what}: it ended with {self.process.returncode}:\n{self.log_tail()}")

    def kill(self) -> None:
        """`kill -9` of Pulsar itself, as a power cut would; returns when it and its starter are gone."""
        assert self.process is not None
        assert self._server_pid in {one.pid for one in descendants(self.process.pid)}
        os.kill(self._server_pid, signal.SIGKILL)
        self.process.wait(STOP_TIMEOUT_S)

    def restart(self) -> None:
        """Start again on the same ports and data after `kill` or `stop`; returns once it serves.

        After a kill it is started twice at least: the store of 4.0.7 finds the registration that the dead one left,
        and its bookie registers and is thrown out a hundred times a second from then on, so that new ledgers fail now
        and then. That also ends its functions worker while it starts, and all with it; so the first start is without.
        An orderly stop takes the registration away.

        Raises:
            ServerFailed: it did not serve within `RESTART_TIMEOUT_S`, however often it was started.
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
        """SIGTERM, and SIGKILL for what is left after half a minute."""
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
    """Say in one line what cannot work of the settings above; None if all can; pure but for a look at the file."""
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
    """The Apache Pulsar of the environment, stopped at the end if it was started here; skips the test without one."""
    it = of_environment(directory)
    if it is None:
        pytest.skip(f"no Apache Pulsar: neither {STARTER} (make test-pulsar PULSAR=…) nor {URL} is set")
    with started(it):
        yield it


def of_environment(directory: Path) -> ApachePulsar | None:
    """The Apache Pulsar that the environment names, not started yet; None if it names none."""
    starter, url = os.environ.get(STARTER), os.environ.get(URL)
    if not starter and not url:
        return None
    it = ApachePulsar(directory, starter or None)
    if url:
        it.addresses = {"brokerServiceUrl": url.rstrip("/"), "webServiceUrl": os.environ[WEB_URL].rstrip("/")}
    return it


@contextlib.contextmanager
def started(it: ApachePulsar) -> Iterator[None]:
    """Start it, or wait until it serves if it runs already; stop it at the end if it was started here."""
    try:
        _start_patiently(it)
        yield
    finally:
        it.stop()


def _start_patiently(pulsar: ApachePulsar) -> None:
    """Start it, again where its starter gave up, which may be sooner than a busy machine needs."""
    for starts in range(1, STARTS_MAX + 1):
        try:
            pulsar.start()
        except ServerFailed:
            if starts == STARTS_MAX or not pulsar.is_dead:
                raise
        else:
            return


def mortal(pulsar: ApachePulsar) -> ApachePulsar:
    """It, alive, for a test that kills it. Skips the test where it is not ours to kill."""
    pulsar.require_starter()
    if pulsar.is_dead:
        pulsar.restart()
    return pulsar


def free_ports(count: int) -> list[str]:
    """Ports that nobody listens on now."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [str(probe.getsockname()[1]) for probe in probes]


def own_name(word: str) -> str:
    """A name that no other test and no earlier run has: an Apache Pulsar may outlive both."""
    return f"{word}-{uuid.uuid4().hex[:8]}"
