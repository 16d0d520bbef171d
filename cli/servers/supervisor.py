"""Supervision of child processes that announce readiness on their standard output.

Design: each child runs in its own session, so that Ctrl-C reaches only the parent, which stops the children in order.
The kernel kills a child when its parent dies (`lifetime.die_with_parent`). A child that exits unexpectedly is restarted
after a backoff that doubles from 0.25 s to 10 s, and is reset once the child has run for 30 s. It keeps the port of its
first start, which other processes use. The first start may fork, which shares the parent's memory; later the parent has
threads, so the child is started with exec.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...runtime.process.forked import ForkedProcess, can_fork, fork
from ...tasks import Backoff, TaskSet, within
from ..failure import Failure
from .lifetime import PARENT_VARIABLE

FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 10.0
SETTLED_S = 30.0
READY_TIMEOUT_S = 30.0
TERM_S = 6.0
"""How long a child may take to stop, in seconds; the remainder of the 10 s is for the broker."""

logger = logging.getLogger(__name__)

Addresses = dict[str, str | int]


@dataclass(frozen=True)
class ChildSpec:
    """Specification of a child process.

    Attributes:
        name: name in logs.
        arguments: returns its command line after ``python -m magnetar.cli``, from the addresses of its last start.
        told: returns the values to write to its standard input as a JSON line, once they are known.
    """

    name: str
    arguments: Callable[[Addresses], Sequence[str]]
    told: Callable[[], Mapping[str, str]]


class Child:
    """One supervised process."""

    def __init__(self, spec: ChildSpec) -> None:
        self.spec = spec
        self.addresses: Addresses = {}
        self._forked: ForkedProcess | None = None
        self._process: asyncio.subprocess.Process | ForkedProcess | None = None
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._tasks = TaskSet(f"supervisor of the {spec.name}")
        self._watcher: asyncio.Task[None] | None = None
        self._is_stopping = False

    def __repr__(self) -> str:
        return f"Child({self.spec.name!r}, pid={self._process.pid if self._process else None})"

    def url(self) -> str | None:
        """Return the child's URL, or None before it was ready for the first time."""
        return next((str(address) for name, address in self.addresses.items() if name != "pid"), None)

    def fork(self) -> None:
        """Fork the process for its first start, if possible; must be called before any thread is started.

        In the child, this raises SystemExit.
        """
        if can_fork():
            arguments, parent = self.spec.arguments(self.addresses), os.getpid()
            self._forked = fork(lambda channel: run_forked(arguments, parent, channel))

    async def spawn(self) -> None:
        """Start the process without waiting, so that it imports its modules in parallel."""
        forked, self._forked = self._forked, None
        if forked is not None:
            self._process, self._streams = forked, await forked.attach()
            return
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "magnetar.cli",
            *self.spec.arguments(self.addresses),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, PARENT_VARIABLE: str(os.getpid())},
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._streams = process, (process.stdout, process.stdin)

    async def ready(self) -> None:
        """Send the process its configuration, wait until it is ready, and supervise it from then on.

        Raises:
            Failure: the process exited, or took too long.
        """
        await self._become_ready()
        self._watcher = self._tasks.keep(self._watch, "watch")

    async def stop(self) -> None:
        """Stop the process: SIGTERM, then SIGKILL after a deadline."""
        self._is_stopping = True
        if self._watcher is not None and self._process is not None and self._process.returncode is not None:
            self._watcher.cancel()  # the watcher may be waiting to restart the child
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            if not await within(TERM_S, process.wait()):
                logger.warning(
                    "killing %s (pid %d), which did not stop within %g s", self.spec.name, process.pid, TERM_S
                )
                process.kill()
                await process.wait()
        if self._watcher is not None:
            await asyncio.gather(self._watcher, return_exceptions=True)

    async def _become_ready(self) -> None:
        process = self._process
        assert process is not None
        assert self._streams is not None
        reader, writer = self._streams
        name = self.spec.name
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                writer.write(json.dumps(dict(self.spec.told())).encode() + b"\n")
                with contextlib.suppress(ConnectionError):
                    await writer.drain()
                line = await next_line(reader)
        except TimeoutError as exc:
            process.kill()
            await process.wait()
            raise Failure(f"the {name} was not ready within {READY_TIMEOUT_S:g} s; see its log above") from exc
        if not line:
            code = await process.wait()
            raise Failure(f"the {name} did not start: it {how_it_ended(code)}; see its log above")
        self.addresses = json.loads(line)

    async def _watch(self) -> None:
        """Restart the process whenever it ends, until `stop`."""
        loop = asyncio.get_running_loop()
        backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S, settled_s=SETTLED_S)
        started_s = loop.time()
        while True:
            assert self._process is not None
            await self._drain()
            code = await self._process.wait()
            if self._is_stopping:
                return
            pause_s = backoff.after(loop.time() - started_s)
            logger.warning(
                "the %s (pid %d) %s; restarting in %g s",
                self.spec.name, self._process.pid, how_it_ended(code), pause_s,
            )  # fmt: skip
            await asyncio.sleep(pause_s)
            started_s = loop.time()
            try:
                await self.spawn()
                await self._become_ready()
            except Failure as exc:
                logger.warning("%s", exc.message)
            else:
                logger.info("restarted the %s (pid %d)", self.spec.name, self._process.pid)

    async def _drain(self) -> None:
        """Log the child's further output, so that its pipe does not fill up."""
        assert self._streams is not None
        reader, writer = self._streams
        while line := await next_line(reader):
            logger.info("unexpected output of %s: %s", self.spec.name, line.decode(errors="replace").rstrip())
        writer.close()


async def next_line(reader: asyncio.StreamReader) -> bytes:
    """Return the child's next line of output; empty at the end, which includes a reset or broken pipe."""
    try:
        return await reader.readline()
    except ConnectionError:
        return b""


def run_forked(arguments: Sequence[str], parent: int, channel: socket.socket) -> int:
    """Run a command line in a newly forked process, with its input and output connected to a socket."""
    os.setsid()
    os.environ[PARENT_VARIABLE] = str(parent)
    for number in (0, 1):
        os.dup2(channel.fileno(), number)
    channel.close()
    sys.stdin = open(0, closefd=False)  # noqa: SIM115  it remains open
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    import setproctitle

    from ..main import main

    setproctitle.setproctitle(f"magnetar {arguments[0]}")
    return main(arguments)


def how_it_ended(code: int) -> str:
    """Describe an exit code in words."""
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"was terminated by {signal.Signals(-code).name}"
    return f"exited with exit code {code}"
