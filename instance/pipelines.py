"""Which pipeline an instance gets: the one for EFFECTIVELY_ONCE is built on other bounds than the others."""

from __future__ import annotations

from typing import Protocol

from ..client.client import AsyncClient
from ..wire.functions_pb2 import EFFECTIVELY_ONCE
from .exact.pipeline import ExactPipeline
from .loading.loader import Home
from .logs.file import InstanceLog
from .pipeline import Pipeline
from .spec import InstanceSpec
from .stats import InstanceStats


class AnyPipeline(Protocol):
    """What runtimes need of a pipeline; see `Pipeline`."""

    stats: InstanceStats
    is_running: bool
    abandoned: bool
    grace_s: float

    async def run(self) -> str:
        """Work until stopped, and return why it ended."""

    def stop(self, grace_s: float) -> None:
        """Ask `run` to end."""


def make_pipeline(spec: InstanceSpec, client: AsyncClient, home: Home, instance_log: InstanceLog) -> AnyPipeline:
    """Return the pipeline of an instance; arguments as those of `Pipeline`."""
    if spec.details.processingGuarantees == EFFECTIVELY_ONCE:
        return ExactPipeline(spec, client, home, instance_log)
    return Pipeline(spec, client, home, instance_log)
