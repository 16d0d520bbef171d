"""`--metrics-port-start`: serves Prometheus metrics of a local run's instances on local ports.

As in Pulsar, process instances have one port each, counting up from the first; instances in the same process share a
port. All ports are served by this process, which requests the metrics of process instances like a worker.
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
"""The cluster label of all metrics, as in Pulsar's local run."""
PORT_MAX = 65535


class LocalMetrics:
    """The metrics servers of one local run; must be closed at the end."""

    def __init__(self, local: LocalRun) -> None:
        """Create closed servers; `open` opens their ports."""
        self._local = local
        self._read: ReadMetrics | None = None
        self._servers: list[WebServer] = []

    async def open(self, first_port: int) -> str:
        """Start serving, and return a line with the addresses.

        Args:
            first_port: the first port; 0 for free ports.

        Raises:
            Failure: a port is in use, or there are not enough ports.
        """
        numbers, urls = self._local.numbers, []
        groups = [[number] for number in numbers] if self._local.has_processes else [list(numbers)]
        if first_port and first_port + len(groups) - 1 > PORT_MAX:
            raise Failure(
                f"--metrics-port-start {first_port}: {len(groups)} instances need one port each, but the highest port"
                f" is {PORT_MAX}: use a lower port"
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
        return f"metrics: {urls[0]}" if len(urls) == 1 else f"metrics, one page per instance: {', '.join(urls)}"

    def offer(self, read: ReadMetrics) -> None:
        """Set the function that returns an instance's metrics, once instances are running."""
        self._read = read

    async def close(self) -> None:
        """Stop the servers."""
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
        """Return an instance's metrics; zeros while it is down."""
        try:
            return MetricsData() if self._read is None else await self._read(number)
        except (KeyError, MagnetarError):
            return MetricsData()


def _refuse(error: MagnetarError) -> Refused:
    return Refused(500, str(error))
