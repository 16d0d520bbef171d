"""The process of an isolated instance, from the fork to the code shared by all instances; its spec is read from files.

The zygote has opened the worker's files for this instance, its spec and its output pipe, without reading them. Secrets
of an operator's provider are looked up in another fork, as root, which exits before this process switches to the
tenant's user. So neither the provider nor its settings get into the instance's memory.
"""

from __future__ import annotations

import os
import select
import signal
import time
from typing import Any, NoReturn

from ...instance.secrets import with_values
from ...instance.spec import from_json
from ...instance.stats import format_error
from ...instance.system_user import SystemUser
from . import child
from .dropping import become, close_all_but, open_of, read_all
from .forked import die_with
from .output import Output

SECRETS_S = 10.0
"""Time limit for looking up all secrets of an instance, in seconds."""
_FOUND, _FAILED = b"+", b"-"
_READ_BYTES = 64 * 1024


def open_files(worker: int, files: dict[str, int]) -> tuple[int, Output]:
    """Open the worker's files for an instance, its spec and its output pipe.

    Args:
        worker: process id of the worker.
        files: its descriptors: ``spec``, ``read`` and ``write``.

    Raises:
        OSError: a file cannot be opened; the others are closed.
    """
    opened: list[int] = []
    try:
        for name, flags in (("spec", os.O_RDONLY), ("read", os.O_RDONLY), ("write", os.O_WRONLY)):
            opened.append(open_of(worker, files[name], flags))
    except OSError:
        for descriptor in opened:
            os.close(descriptor)
        raise
    spec, read_end, write_end = opened
    return spec, Output(read_end, write_end)


def run(command: dict[str, Any], parent: int, spec: int, output: Output) -> NoReturn:
    """Switch to the user of an instance, run it and exit.

    Args:
        command: the worker's command, with ``user``, ``home`` and ``resolves``.
        parent: process id of the zygote.
        spec: descriptor of the spec.
        output: output of the instance.
    """
    try:
        close_all_but((spec, output.read_end, output.write_end))
        text = _with_secrets(spec) if command["resolves"] else read_all(spec)
        become(SystemUser(*command["user"]), command["home"], parent)
    except BaseException as error:  # noqa: BLE001  on any error, no user code runs
        os.write(output.write_end, f"the instance cannot be isolated: {error}\n".encode(errors="replace"))
        os._exit(1)
    child.run(text.decode(), output)


def _with_secrets(spec: int) -> bytes:
    """Return a spec with the values of its secrets, looked up in a separate process.

    Raises:
        RuntimeError: the secrets cannot be found; the message contains the reason.
    """
    reading, writing = os.pipe2(os.O_CLOEXEC)
    own = os.getpid()
    finder = os.fork()
    if not finder:
        _find(own, spec, writing)
    os.close(writing)
    os.close(spec)
    answer, until_s = b"", time.monotonic() + SECRETS_S
    waiting = select.poll()
    waiting.register(reading, select.POLLIN | select.POLLHUP)
    while left_s := max(0.0, until_s - time.monotonic()):
        if not waiting.poll(left_s * 1000):
            break
        piece = os.read(reading, _READ_BYTES)
        if not piece:
            break
        answer += piece
    os.kill(finder, signal.SIGKILL)
    os.waitpid(finder, 0)
    os.close(reading)
    if not answer.startswith(_FOUND):
        reason = answer[1:].decode(errors="replace") or f"the provider did not respond within {SECRETS_S:g} s"
        raise RuntimeError(f"cannot find the secrets: {reason}")
    return answer[1:]


def _find(parent: int, spec: int, answers: int) -> NoReturn:
    try:
        die_with(parent)
        try:
            answer = _FOUND + with_values(from_json(read_all(spec).decode())).to_json().encode()
        except BaseException as error:  # noqa: BLE001  the provider is the operator's code; the instance reports its error
            answer = _FAILED + format_error(error).encode(errors="replace")
        with open(answers, "wb") as file:
            file.write(answer)
    finally:
        os._exit(0)
