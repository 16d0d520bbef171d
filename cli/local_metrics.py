"""`--metrics-port-start`: the numbers of a local run's instances for Prometheus, on ports of this machine.

As with Pulsar, instances that are processes have a port each, counted up from the first; those in one process share it.
All are answered here: a process instance is asked for its numbers as a worker would ask it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from starlette.responses import Response

from ..errors import InvalidConfig, MagnetarError
from ..runtime.local import LocalRun, ReadMetrics
from ..web.answers import Refused
from ..web.call import Call
from ..web.exposition import CONTENT_TYPE
from ..web.router import RestRouter
from ..web.serve import WebServer, serve
from ..wire.functions_pb2 import MetricsData
from ..worker.functions.components import component_of
from ..worker.functions.instances import InstanceMetrics
from ..worker.rest.metrics import render
from .failure import Failure

HOST = "127.0.0.1"
CLUSTER = "local"
"""The label of every number, as Pulsar's local run has it."""
PORT_MAX = 65535


class LocalMetrics:
    """The servers of one local run; `close` at the end."""

    def __init__(self, local: LocalRun) -> None:
        """Prepare; `open` follows."""
        self._local = local
        self._read: ReadMetrics | None = None
        self._servers: list[WebServer] = []

    async def open(self, first_port: int) -> str:
        """Serve, and return a line that says where.

        Args:
            first_port: 0 takes free ones.

        Raises:
            Failure: a port is taken, or there are not so many.
        """
        numbers, urls = self._local.numbers, []
        groups = [[number] for number in numbers] if self._local.has_processes else [list(numbers)]
        if first_port and first_port + len(groups) - 1 > PORT_MAX:
            raise Failure(
                f"--metrics-port-start {first_port}: {len(groups)} instances need a port each, and {PORT_MAX} is the"
                " last one; give a lower one"
            )
        try:
            for offset, group in enumerate(groups):
                port = first_port + offset if first_port else 0
                router = RestRouter([("GET", "/metrics", partial(self._answer, group))], Call, _refuse, "local run")
                server, port = await serve(router, HOST, port)
                self._servers.append(server)
                urls.append(f"http://{HOST}:{port}/metrics")
        except InvalidConfig as error:
            raise Failure(f"--metrics-port-start {first_port}: {error}") from error
        return f"metrics: {urls[0]}" if len(urls) == 1 else f"metrics, a page for each instance: {', '.join(urls)}"

    def offer(self, read: ReadMetrics) -> None:
        """Take what returns the numbers of an instance, once they run."""
        self._read = read

    async def close(self) -> None:
        """End the servers."""
        await asyncio.gather(*(server.stop() for server in self._servers))

    async def _answer(self, numbers: Sequence[int], _: Call) -> Response:
        details = self._local.details
        component = component_of(details)
        found = await asyncio.gather(*map(self._of, numbers))
        counted = [
            InstanceMetrics(f"{details.tenant}/{details.namespace}/{details.name}:{number}", component, data)
            for number, data in zip(numbers, found, strict=True)
        ]
        return Response(render(CLUSTER, counted, ()), media_type=CONTENT_TYPE)

    async def _of(self, number: int) -> MetricsData:
        """Return the numbers of an instance, zeros while it is down."""
        try:
            return MetricsData() if self._read is None else await self._read(number)
        except (KeyError, MagnetarError):
            return MetricsData()


def _refuse(error: MagnetarError) -> Refused:
    return Refused(500, str(error))
