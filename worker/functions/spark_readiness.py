"""Check that Spark functions can run at all, when one is created."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ...config.conversion import runtime_options
from ...config.function_config import SPARK
from ...errors import InvalidConfig, RequestRefused, SparkFailed
from ...spark.readiness import check_ready
from ...wire.functions_pb2 import FunctionDetails


def is_spark(details: FunctionDetails) -> bool:
    """Return whether a function works in runs, by Spark."""
    return runtime_options(details.customRuntimeOptions).get("runtime_env") == SPARK


class SparkReadiness:
    """Refuses Spark functions where they could not run."""

    def __init__(self, worker_id: str, master: str, state_url: str, directory: Path) -> None:
        """Look at the machine of the worker `worker_id`, which takes the requests and has Spark write to a place."""
        self._worker_id = worker_id
        self._master = master
        self._state_url = state_url
        self._directory = directory

    async def check(self, details: FunctionDetails) -> None:
        """Make sure that a function which is to run by Spark can.

        Raises:
            RequestRefused: it cannot, and why.
        """
        if not is_spark(details):
            return
        if not self._state_url:
            raise RequestRefused(
                400,
                "runtimeEnv spark keeps the plans of its runs in the state store, and there is none; set"
                " stateStorageServiceUrl in the worker's configuration",
            )
        try:
            await asyncio.to_thread(check_ready, self._master, None, self._directory)
        except (InvalidConfig, SparkFailed) as exc:
            raise RequestRefused(
                400, f"runtimeEnv spark is not possible on the machine of worker {self._worker_id}: {exc}"
            ) from exc
