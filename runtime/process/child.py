"""The process of an instance, from its fork to its exit.

The main thread runs the client's event loop; the function has its own thread, so that signals, status requests and
keep-alive messages are handled while the function computes.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import gc
import logging
import os
import random
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import NoReturn

import setproctitle
import uvloop

from ...client.client import AsyncClient
from ...client.config import SERVICE_BACKOFF_MAX_MS, ClientConfig
from ...instance.loading import pulsar_facade
from ...instance.loading.loader import ProcessHome
from ...instance.logs.file import InstanceLog, LogHandler, LogStream, NotALog, open_log
from ...instance.pipeline import Pipeline
from ...instance.spec import InstanceSpec, from_json
from ...instance.stats import format_error
from ...wire.functions_pb2 import FunctionStatus, MetricsData
from .. import control
from .output import Drain, Output

SWITCH_INTERVAL_S = 0.0005  # otherwise a busy function delays each event loop iteration by 5 ms
STOP_GRACE_S = 10.0  # the worker may kill it earlier
LAST_WORDS_CHARACTERS_MAX = 16 * 1024
TURN_TIMEOUT_S = 1.5  # the worker waits two seconds for the response


GC_THRESHOLDS = (10_000, 20, 50)
"""Allocations between two collections of cyclic garbage: messages in flight are many objects without cycles. The
zygote's objects are frozen, so a function that creates cycles is still collected often enough.
"""

_keep_alive: list[object] = []


def warm_up() -> None:
    """Do in the zygote what every child would otherwise repeat, without creating threads."""
    setproctitle.setproctitle("magnetar zygote")
    sys.argv[:] = ["magnetar-instance"]


def run(spec_text: str, output: Output) -> NoReturn:
    """Run an instance and exit, with code 0 if it was stopped."""
    spec = from_json(spec_text)
    setproctitle.setproctitle(f"magnetar instance {spec.key}")
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(*GC_THRESHOLDS)
    random.seed()  # otherwise all instances would inherit the same random state
    try:
        if spec.user is not None:
            _make_room(spec.log_file)
        instance_log = InstanceLog(spec.log_file)
    except OSError as error:
        _leave_word(spec, f"log file {spec.log_file} cannot be written: {error}")
        os._exit(1)
    os.register_at_fork(after_in_child=instance_log.forked)
    drain = Drain(output, instance_log)
    output.become_standard()
    drain.start()
    streams = LogStream(instance_log, "INFO"), LogStream(instance_log, "ERROR")
    sys.stdout, sys.stderr = streams
    logging.basicConfig(level=logging.INFO, handlers=[LogHandler(instance_log)], force=True)
    pulsar_facade.install()
    try:
        reason = uvloop.run(_live(spec, instance_log))
        if not reason:
            atexit._run_exitfuncs()
    except BaseException as error:  # noqa: BLE001  last chance to report it
        reason = format_error(error)
    for stream in streams:  # not sys.stdout or sys.stderr, which the function may have replaced
        stream.flush()
    drain.finish()
    if reason:
        instance_log.write("ERROR", f"instance {spec.key} ends: {reason}")
        _leave_word(spec, reason)
    else:
        instance_log.write("INFO", f"instance {spec.key} is stopped")
    # Not sys.exit: threads of the function may run forever, and the interpreter would wait for them.
    os._exit(1 if reason else 0)


def _make_room(log_file: Path) -> None:
    """Remove anything other than a log at the log's path, left there by earlier code of this user."""
    try:
        os.close(open_log(log_file, os.O_RDONLY))
    except FileNotFoundError:
        return
    except NotALog:
        if log_file.is_dir() and not log_file.is_symlink():
            shutil.rmtree(log_file, ignore_errors=True)
        else:
            log_file.unlink()


def _leave_word(spec: InstanceSpec, reason: str) -> None:
    """Write the exit reason to a file for the worker; on a full disk, the end of the log must suffice."""
    with contextlib.suppress(OSError):
        spec.last_words.write_text(reason[:LAST_WORDS_CHARACTERS_MAX], encoding="utf-8", errors="backslashreplace")


async def _live(spec: InstanceSpec, instance_log: InstanceLog) -> str:
    config = ClientConfig(
        description=f"function {spec.key}", backoff_max_ms=SERVICE_BACKOFF_MAX_MS, **spec.client_security.to_dict()
    )
    client = AsyncClient(spec.service_url, config, admin_url=spec.admin_url)
    try:
        pipeline = Pipeline(spec, client, ProcessHome(spec.package, spec.libraries), instance_log)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, pipeline.stop, STOP_GRACE_S)
        # The service responds until the process exits, and is not shut down, which the worker would log to standard
        # error.
        server = control.serve(_Answers(pipeline, asyncio.get_running_loop()), spec.control_socket)
        reason = await pipeline.run()
        _keep_alive.append(server)
        return reason
    finally:
        await client.close()


class _Answers:
    """Answers status requests, on the control thread."""

    def __init__(self, pipeline: Pipeline, loop: asyncio.AbstractEventLoop) -> None:
        self._pipeline = pipeline
        self._loop = loop

    def status(self) -> FunctionStatus:
        return self._pipeline.status()

    def metrics(self) -> MetricsData:
        return self._pipeline.stats.metrics()

    def reset(self) -> None:
        self._pipeline.stats.reset()

    def is_healthy(self) -> bool:
        """Return whether the event loop is responsive; code such as `__del__`, called on any thread, may block it."""
        turned = threading.Event()
        try:
            self._loop.call_soon_threadsafe(turned.set)
        except RuntimeError:  # closed: the instance is about to end
            return True
        return turned.wait(TURN_TIMEOUT_S)
