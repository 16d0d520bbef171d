"""The thread runtime: runs instances as threads of the worker, which are small and fast to start.

They are isolated as far as Python allows, but endless loops, crashes and memory leaks affect the worker; untrusted
functions require processes. Instances with the same credentials share one client, and so its connections.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import TextIO, cast

from ...api.serde import SerDe
from ...client.client import AsyncClient
from ...client.config import SERVICE_BACKOFF_MAX_MS, ClientConfig
from ...errors import ClosedError
from ...instance.function_context import instance_logger
from ...instance.loading.import_space import ImportSpace, SpacePickleSerDe
from ...instance.loading.loader import Loading
from ...instance.logs.file import InstanceLog, LogHandler, LogStream
from ...instance.pipeline import Pipeline, has_connector, import_connectors
from ...instance.spec import InstanceSpec
from ...instance.stats import reason_of
from ...instance.turns import Turns
from ...security.credentials.client_security import ClientSecurity
from ...tasks import TaskSet, awaited_elsewhere
from ...wire.functions_pb2 import FunctionStatus, MetricsData
from .routing import OutputRouter

MEND_S = 0.5
"""Interval of checking the worker's logging for changes by functions, in seconds."""
COLLECT_S = 10.0
"""Interval of collecting modules of ended functions, in seconds: they are cycles, which Python may keep for hours."""


class ThreadHome:
    """A function's part of the worker's process.

    Attributes:
        loading: modules being imported.
    """

    def __init__(self, spec: InstanceSpec, instance_log: InstanceLog, router: OutputRouter) -> None:
        """Create a home; nothing is changed before the thread starts."""
        self.loading = Loading()
        output = cast(TextIO, LogStream(instance_log, "INFO"))
        self._space = ImportSpace(spec.key, spec.package, output, spec.libraries)
        self._router = router
        self._is_left = self._is_closed = False
        self._log = instance_log
        self._handler = LogHandler(instance_log)
        # The context's logger is also the parent of loggers from `logging.getLogger(__name__)` in the function's
        # modules.
        self._loggers = (instance_logger(spec), logging.getLogger(self._space.prefix))

    def enter_thread(self) -> None:  # noqa: D102  documented in loader.Home
        self._router.enter(self._log)
        for logger in self._loggers:
            logger.level = logging.INFO  # setLevel() clears all loggers' caches; these have none yet
            logger.propagate = False
            for old in list(logger.handlers):  # belongs to an abandoned run
                logger.removeHandler(old)
            logger.addHandler(self._handler)
        self._space.install()

    def leave_thread(self) -> None:  # noqa: D102
        self._router.leave()
        for logger in self._loggers:
            logger.removeHandler(self._handler)
        self._is_left = True
        if self._is_closed:  # the thread was abandoned and has now ended
            self.close()

    def close(self) -> None:
        """Drop the modules when the thread has ended; a new run imports them again."""
        self._is_closed = True
        if self._is_left:
            self._space.close(self._loggers[0].name)

    def import_module(self, name: str) -> ModuleType:  # noqa: D102
        try:
            return self._space.import_module(name)
        finally:
            self._router.mend()

    def pickle_serde(self) -> SerDe:  # noqa: D102
        return SpacePickleSerDe(self._space)


class ThreadInstance:
    """An instance on a thread."""

    def __init__(
        self, spec: InstanceSpec, client: AsyncClient, router: OutputRouter, turns: Turns, release: Callable[[], None]
    ) -> None:
        """Create an instance and start it; ``release`` is called once it no longer needs its client."""
        self._key = spec.key
        self._log = InstanceLog(spec.log_file)
        self._home = ThreadHome(spec, self._log, router)
        self._pipeline = Pipeline(spec, client, self._home, self._log, turns=turns)
        self._tasks = TaskSet(f"instance {spec.key}")
        self._running = self._tasks.start(self._run(), "run", awaited_elsewhere)
        self._running.add_done_callback(lambda _: release())

    async def _run(self) -> str:
        try:
            reason = await self._pipeline.run()
        except Exception as error:  # noqa: BLE001  the instance ends with it, like with any other error
            reason = reason_of(error)
        if reason:
            self._log.write("ERROR", f"instance {self._key} ends: {reason}")
        else:
            self._log.write("INFO", f"instance {self._key} is stopped")
        await asyncio.to_thread(self._home.close)
        if not self._pipeline.abandoned:
            self._log.close()
        return reason

    async def status(self) -> FunctionStatus:  # noqa: D102  documented in interface.Instance
        status = self._pipeline.status()
        if self._running.done() and not self._running.cancelled():
            status.failureException = self._running.result()
        return status

    async def metrics(self) -> MetricsData:  # noqa: D102
        return self._pipeline.stats.metrics()

    async def stop(self, grace_s: float) -> None:  # noqa: D102
        self._pipeline.stop(grace_s)
        await asyncio.wait((self._running,))

    def leftover(self) -> str:  # noqa: D102
        if not self._pipeline.abandoned:
            return ""
        return (
            f"the thread of {self._key} did not stop within {self._pipeline.grace_s:g} s and was abandoned: its"
            " output is discarded, but it holds its resources until the worker restarts"
        )

    def death(self) -> str:  # noqa: D102
        return ""  # the worker's process would have died

    async def wait(self) -> str:  # noqa: D102
        return await asyncio.shield(self._running)


@dataclass(slots=True)
class _SharedClient:
    """A client, and the number of instances that use it."""

    client: AsyncClient
    users: int = 0


class ThreadRuntime:
    """Starts instances in this process, on the event loop of the `start` call."""

    def __init__(self, service_url: str) -> None:
        """Create a runtime; the first instance with different credentials opens another client."""
        self._service_url = service_url
        self._clients: dict[ClientSecurity, _SharedClient] = {}
        self._is_installed = False
        self._router = OutputRouter()
        self._turns = Turns()
        self._have_ended = False
        self._collected_s = 0.0
        self._tasks = TaskSet("thread instances")
        self._is_closed = False

    async def warm_up(self) -> None:
        """Do nothing, as threads need no preparation."""

    async def start(self, spec: InstanceSpec) -> ThreadInstance:  # noqa: D102  documented in interface.Runtime
        if has_connector(spec.details):
            await asyncio.to_thread(import_connectors)
        if self._is_closed:
            raise ClosedError("the worker is stopping")
        if not self._is_installed:
            self._is_installed = True
            self._router.install()
            self._tasks.keep(self._mend, "guard the logging")
        shared = self._clients.get(spec.security)
        if shared is None:
            config = ClientConfig(
                description="thread functions", backoff_max_ms=SERVICE_BACKOFF_MAX_MS, **spec.client_security.to_dict()
            )
            client = AsyncClient(self._service_url, config, admin_url=spec.admin_url)
            shared = self._clients[spec.security] = _SharedClient(client)
        shared.users += 1
        return ThreadInstance(spec, shared.client, self._router, self._turns, partial(self._release, spec.security))

    def _release(self, security: ClientSecurity) -> None:
        """Record that an instance has ended; close its client if unused, except the one without credentials."""
        shared = self._clients[security]
        shared.users -= 1
        self._have_ended = True
        if not shared.users and security.auth_plugin and not self._is_closed:
            del self._clients[security]
            self._tasks.start(shared.client.close(), "close a client")

    async def _mend(self) -> None:
        while True:
            await asyncio.sleep(MEND_S)
            self._router.mend()
            if self._have_ended and time.monotonic() - self._collected_s > COLLECT_S:
                self._have_ended, self._collected_s = False, time.monotonic()
                await asyncio.to_thread(gc.collect)

    async def close(self) -> None:  # noqa: D102
        self._is_closed = True
        await self._tasks.close()
        for shared in self._clients.values():
            await shared.client.close()
        if self._is_installed:
            self._router.remove()
