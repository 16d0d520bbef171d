"""Instances of a function under test: the same pipeline as on workers, on the cluster's loop."""

from __future__ import annotations

import asyncio

from ..client.client import AsyncClient
from ..instance.logs.file import InstanceLog
from ..instance.pipeline import Pipeline
from ..instance.spec import InstanceSpec
from ..instance.stats import reason_of
from ..tasks import TaskSet, awaited_elsewhere
from ..wire.functions_pb2 import FunctionMetaData
from .cluster import Cluster
from .home import TestedHome

WORKER_ID = "test"
GRACE_S = 2.0
"""Time that the function has to return at the end of a test, in seconds."""
_LOOK_S = 0.001


class TestedInstance:
    """One instance, to be used on the test's thread.

    Attributes:
        pipeline: the instance's pipeline.
        end: reason why the instance ended, empty if it was stopped; None while it runs.
    """

    def __init__(
        self,
        function: object,
        metadata: FunctionMetaData,
        number: int,
        cluster: Cluster,
        client: AsyncClient,
    ) -> None:
        """Create an instance; `start` runs it."""
        self.end: str | None = None
        self._cluster = cluster
        directory = cluster.directory()
        self._spec = InstanceSpec(
            metadata=metadata, instance_id=number, package=directory / "package", worker_id=WORKER_ID,
            service_url=cluster.service_url, admin_url="", state_url=cluster.state_url,
            log_file=directory / "log", control_socket=directory / "socket", last_words=directory / "last-words",
        )  # fmt: skip
        self._log = InstanceLog(self._spec.log_file)
        self._home = TestedHome(function, self._spec, self._log)
        self._client = client
        self._tasks: TaskSet

    def start(self, timeout_s: float) -> None:
        """Start the instance, and return once it is waiting for messages or has ended."""
        self._cluster.call(self._start(timeout_s), 2 * timeout_s)
        self._unwatch = self._cluster.loop.watch(lambda: self.pipeline.is_busy)

    async def _start(self, timeout_s: float) -> None:
        self._tasks = TaskSet(f"test of {self._spec.key}")
        self.pipeline = Pipeline(self._spec, self._client, self._home, self._log)
        self._tasks.start(self._run(), "run", awaited_elsewhere)
        until_s = self._cluster.loop.time() + timeout_s
        while not self.pipeline.is_running and self.end is None:
            if self._cluster.loop.time() > until_s:
                trouble = self.pipeline.status().failureException
                self.end = f"the function was not running after {timeout_s:g} s: {trouble or 'still starting'}"
            await asyncio.sleep(_LOOK_S)

    async def _run(self) -> None:
        try:
            self.end = await self.pipeline.run()
        except Exception as error:  # noqa: BLE001  any error ends the instance
            self.end = reason_of(error)

    def log_text(self) -> str:
        """Return the instance's log so far."""
        return self._spec.log_file.read_text(encoding="utf-8", errors="replace")

    def stop(self) -> None:
        """Stop the instance; work in progress has `GRACE_S` to finish."""
        self._unwatch()
        self._cluster.call(self._stop())

    async def _stop(self) -> None:
        self.pipeline.stop(GRACE_S)
        await self._tasks.idle()
        self._log.close()
