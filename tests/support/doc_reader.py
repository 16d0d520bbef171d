"""Simulate a reader of the documentation, who pastes every command block of a page into a shell, in order.

Differences from a reader's machine: servers listen on free ports, which replace the default ports in the page; `/tmp`
and the home directory belong to the test; and the working directory is a checkout that contains only `examples/`.

- `magnetar standalone &` and other servers are started on those ports, and the test waits until they are ready. If a
  page starts no server, a `standalone` is already running. A `standalone` or `broker` replaces all running servers;
  another server replaces the one with its port.
- A command whose comment mentions Ctrl-C gets its own terminal, must print output, and is interrupted at the end of the
  page.
- Every other command must exit with 0 within `COMMAND_S`. A query with expected output is repeated until it matches.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import psutil

from .doc_blocks import ROOT, Block, blocks_of, commands_of
from .ports import Reserved
from .servers import PORT_FLAGS, Server, descendants, survivors
from .waiting import wait_for

COMMAND_S = 300.0
OUTPUT_S = 60.0
STOP_S = 30.0
PORTS = {"--broker-port": 6650, "--web-port": 8080, "--worker-port": 6750, "--state-port": 4181}
PORT_KEYS = {"workerPort": "--worker-port"}
MORE_PORTS = (6651, 6751, 6752, 8443, 10999)
QUERY = re.compile(r"\b(status|stats|list|get|show|logs|querystate|versions|peek|permissions|curl|cat|ls|tail)\b")
ADDRESS = re.compile(r"(127\.0\.0\.1|localhost):(6650|8080)")


class PageBroken(AssertionError):
    """A command of a page failed; the message contains its location, the command and its output."""


@dataclass(frozen=True)
class Place:
    """A command and its location in the page."""

    page: str
    line: int
    command: str

    def broken(self, what: str, output: str) -> PageBroken:
        return PageBroken(f"{self.page}:{self.line}: {what}\n$ {self.command}\n{output}")


class PageServer(Server):
    """A server whose ports are set by its command."""

    def _port_flags(self) -> list[str]:
        return []


class Terminal:
    """A shell that runs commands one after the other, and preserves variables and directory."""

    def __init__(self, directory: Path, environment: dict[str, str], scratch: Path) -> None:
        self.directory = directory
        self._scratch = scratch / "output"
        self._bash = subprocess.Popen(
            ["bash", "--norc"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=directory, env=environment,
            start_new_session=True,
        )  # fmt: skip

    def run(self, command: str, timeout_s: float = COMMAND_S) -> tuple[int | None, str]:
        """Run a command; return its exit code, or None after a timeout, and its output."""
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        output = shlex.quote(str(self._scratch))
        script = f"eval {shlex.quote(command)} >{output} 2>&1 </dev/null\nprintf '%s %s\\n' $? \"$PWD\"\n"
        self._bash.stdin.write(script.encode())
        self._bash.stdin.flush()
        ready, _, _ = select.select([self._bash.stdout], [], [], timeout_s)
        code = None
        if ready:
            status, _, directory = self._bash.stdout.readline().decode().strip().partition(" ")
            code, self.directory = int(status), Path(directory)
        return code, self._scratch.read_text(errors="replace")

    def close(self) -> None:
        """End the shell and its background processes."""
        below = descendants(self._bash.pid)
        self._bash.kill()
        for process in below:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._bash.communicate()
        survivors(below, STOP_S)


class Reader:
    """Runs pages in one directory, with servers that run until `close`."""

    def __init__(self, directory: Path) -> None:
        # Short, because sockets are made below it, whose paths have at most 107 bytes.
        self._temporary = Path(tempfile.mkdtemp(prefix="docs-"))
        self._home = directory / "home"
        self._log = directory / "log"
        checkout = directory / "checkout"
        for path in (self._home, self._log):
            path.mkdir(parents=True)
        shutil.copytree(ROOT / "examples", checkout / "examples", ignore=shutil.ignore_patterns("__pycache__"))
        numbers = (*PORTS.values(), *MORE_PORTS)
        self._reserved = Reserved(len(numbers))
        self.ports = dict(zip(numbers, self._reserved.numbers, strict=True))
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("MAGNETAR_", "PYTEST"))},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self._home),
            "TMPDIR": str(self._temporary),
            "MAGNETAR_SERVICE_URL": f"pulsar://127.0.0.1:{self.ports[6650]}",
            "MAGNETAR_ADMIN_URL": f"http://127.0.0.1:{self.ports[8080]}",
        }
        self._terminal = Terminal(checkout, self._environment, self._log)
        self._servers: list[PageServer] = []
        self._interrupted: list[tuple[Place, subprocess.Popen[bytes], Path]] = []
        self._started = 0

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with contextlib.suppress(*([PageBroken] if kind else [])):  # the first failure is the one to see
                self._interrupt()
        finally:
            self._terminal.close()
            self._stop_servers()
            shutil.rmtree(self._temporary, ignore_errors=True)

    @property
    def directory(self) -> Path:
        """Working directory of the page."""
        return self._terminal.directory

    def change_directory(self, directory: Path) -> None:
        """Change the working directory."""
        self._terminal.run(f"cd {shlex.quote(str(directory))}")

    @property
    def admin_url(self) -> str:
        """URL of the REST interface of the page's server."""
        return self._environment["MAGNETAR_ADMIN_URL"]

    def read(self, page: Path) -> None:
        """Run all runnable blocks of a page in order.

        Raises:
            PageBroken: a command failed.
        """
        printed = ""
        last: Place | None = None
        for block in blocks_of(page):
            if block.not_run:
                continue
            if block.file_name:
                self._save(block)
            elif block.language == "sh":
                printed, last = self._run_block(block)
            elif block.language == "output" and last is not None:
                self._compare(block, last, printed)
            elif is_client(block):
                self._run_python(block)

    def localized(self, text: str) -> str:
        """Replace ports and directories of the page with those of the test."""
        numbers = "|".join(map(str, self.ports))
        text = re.sub(rf"(?<![\w.])({numbers})(?![\w.])", lambda match: str(self.ports[int(match[1])]), text)
        return re.sub(r"(?<![\w.])/tmp(?=/)", str(self._temporary), text)

    def _save(self, block: Block) -> None:
        file = self.directory / block.file_name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self.localized(block.code))

    def _run_block(self, block: Block) -> tuple[str, Place | None]:
        printed = ""
        place = None
        commands = list(commands_of(block))
        for number, (line, text) in enumerate(commands):
            place = Place(block.page.name, line, text)
            command = self.localized(text)
            if (server := server_of(command)) is not None:
                if not text.rstrip().endswith("&") and number < len(commands) - 1:
                    raise place.broken("holds up what follows: put & behind it, or end the block with it", "")
                self._start(place, *server)
            elif re.search(r"#.*Ctrl-C", text):
                self._run_until_interrupted(place, command)
            else:
                printed += self._run(place, command)
        return printed, place

    def _run(self, place: Place, command: str) -> str:
        if "magnetar" in command or ADDRESS.search(place.command):
            self._serve(place)
        code, output = self._terminal.run(command)
        if code is None:
            raise place.broken(f"did not end within {COMMAND_S:g} s", output)
        if code != 0:
            raise place.broken(f"exit code {code}", output + self._server_logs())
        return output

    def _run_python(self, block: Block) -> None:
        file = self.directory / f"{block.page.stem}-block.py"
        file.write_text("\n" * (block.line - 1) + self.localized(block.code))  # its lines are those of the page
        self._serve(Place(block.page.name, block.line, "python"))
        self._run(Place(block.page.name, block.line, "python"), f"python {file.name}")

    def _run_until_interrupted(self, place: Place, command: str) -> None:
        self._started += 1
        log = self._log / f"terminal-{self._started}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                cwd=self.directory, env=self._environment, start_new_session=True,
            )  # fmt: skip
        self._interrupted.append((place, process, log))
        wait_for(lambda: log.read_text() or process.poll() is not None, f"output of {place.command}", OUTPUT_S)

    def _interrupt(self) -> None:
        """Press Ctrl-C in all terminals; raises PageBroken if a command had already ended, or ends with an error."""
        broken = []
        for place, process, log in self._interrupted:
            ended_before = process.poll()
            process.send_signal(signal.SIGINT)
            try:
                code = process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
            output = log.read_text()
            if ended_before is not None:
                broken.append(place.broken(f"ended with {ended_before} before Ctrl-C", output))
            elif code not in (0, 130, -signal.SIGINT) or "Traceback" in output:
                broken.append(place.broken(f"ended with {code} on Ctrl-C", output))
        self._interrupted.clear()
        if broken:
            raise broken[0]

    def _compare(self, shown: Block, place: Place, printed: str) -> None:
        lines = [self.localized(line) for line in shown.code.splitlines()]
        if missing_line(lines, printed) is None:
            return
        repeated = printed
        deadline = time.monotonic() + OUTPUT_S
        while QUERY.search(place.command) and time.monotonic() < deadline:
            repeated = printed + self._run(place, self.localized(place.command))
            if missing_line(lines, repeated) is None:
                return
        missing = missing_line(lines, repeated)
        raise place.broken(f"the page shows in line {shown.line} that it prints {missing!r}; it printed:", repeated)

    def _serve(self, place: Place) -> None:
        if not self._servers:
            self._start(place, {}, ["standalone"])

    def _start(self, place: Place, variables: dict[str, str], words: list[str]) -> None:
        kind, *flags = words
        given = {word.partition("=")[0] for word in flags} | self._ports_in_file(flags)
        free = [(flag, str(self.ports[PORTS[flag]])) for flag in PORT_FLAGS[kind] if flag not in given]
        flags = [*flags, *(word for pair in free for word in pair)]
        if kind in ("standalone", "broker"):
            self._stop_servers()
        for server in [one for one in self._servers if not ports_of(one.command).isdisjoint(ports_of(flags))]:
            self._servers.remove(server)
            server.stop()
        self._started += 1
        directory = self._log / f"server-{self._started}"
        directory.mkdir()
        server = PageServer(
            (kind, *flags), directory, environment={**self._environment, **variables}, cwd=self.directory
        )
        self._servers.append(server)
        try:
            server.start()
        except AssertionError as error:
            raise place.broken("the server did not start", str(error)) from error

    def _ports_in_file(self, flags: Sequence[str]) -> set[str]:
        """Return the port flags that the `--config` file of a server sets."""
        files = [self.directory / name for flag, name in itertools.pairwise(flags) if flag == "--config"]
        return {flag for file in files for key, flag in PORT_KEYS.items() if f"{key}:" in file.read_text()}

    def _stop_servers(self) -> None:
        while self._servers:
            self._servers.pop().stop()

    def _server_logs(self) -> str:
        return "".join(f"\nlog of {server.command[0]}:\n{server.log_tail()}" for server in self._servers)


def ports_of(words: Sequence[str]) -> set[str]:
    """Return the ports in the flags of a server."""
    return {port for flag, port in itertools.pairwise(words) if flag in PORTS}


def server_of(command: str) -> tuple[dict[str, str], list[str]] | None:
    """Return the variables, and the words after `magnetar`, of a command that starts a server, else None."""
    words = shlex.split(command, comments=True)
    variables = {}
    while words and re.match(r"[A-Z_]+=", words[0]):
        name, _, variables[name] = words.pop(0).partition("=")
    words = [word for word in words if word != "&"]
    return (variables, words[1:]) if words[:1] == ["magnetar"] and words[1:2] and words[1] in PORT_FLAGS else None


def is_client(block: Block) -> bool:
    """Return whether a block is a Python program that requires a server."""
    return block.language == "python" and not block.file_name and ADDRESS.search(block.code) is not None


def missing_line(shown: list[str], printed: str) -> str | None:
    """Return the first expected line that was not printed after the earlier ones, or None.

    Whitespace is normalised, and `…` matches anything within a line.
    """
    lines = iter(printed.splitlines())
    for line in filter(str.strip, shown):
        parts = (r"\s+".join(map(re.escape, part.split())) for part in line.split("…"))
        pattern = re.compile(r".*".join(parts))
        if not any(pattern.search(one) for one in lines):
            return line
    return None
