"""Runs one instance in this process, so that its author can set breakpoints.

The function is imported under its own name and has direct access to standard input and output, so `pdb` works. Lines
from the context's logger and tracebacks of failures are shown too. An instance that ends is not restarted; the reason
is returned.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections.abc import Callable

from ..client.client import AsyncClient
from ..client.config import SERVICE_BACKOFF_MAX_MS, ClientConfig
from ..instance.function_context import instance_logger
from ..instance.loading import pulsar_facade
from ..instance.loading.loader import ProcessHome
from ..instance.logs.file import InstanceLog, LogHandler
from ..instance.pipeline import Pipeline
from ..instance.spec import InstanceSpec
from ..tasks import TaskSet, awaited_elsewhere
from ..wire.functions_pb2 import MetricsData

GRACE_S = 5.0
"""Time for the function to finish the current message on stop; after that the message is redelivered."""
_LOOK_S = 0.2
_COUNT = re.compile(r"\d+ (?:try|tries|attempts?|s;)")


async def run_here(
    spec: InstanceSpec,
    stop: asyncio.Event,
    show: Callable[[str], None],
    warn: Callable[[str], None],
    offer: Callable[[Callable[[], MetricsData]], None],
) -> str:
    """Run an instance until ``stop`` is set or it ends; return the reason, empty if it was stopped.

    Args:
        spec: the instance to run.
        stop: ends it.
        show: called with the instance's log lines, from any thread.
        warn: called with the reason why the instance is blocked, whenever it changes.
        offer: called once, before the start, with a function that returns the instance's counters.

    Cancellation: stops it without waiting for the function.
    """
    log = InstanceLog(spec.log_file)
    log.observers.append(lambda level, text: show(f"{level} {text}"))
    handler = LogHandler(log)
    logger = instance_logger(spec)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(handler)
    pulsar_facade.install()
    config = ClientConfig(
        description=f"function {spec.key}", backoff_max_ms=SERVICE_BACKOFF_MAX_MS, **spec.client_security.to_dict()
    )
    client = AsyncClient(spec.service_url, config, admin_url=spec.admin_url)
    tasks = TaskSet(f"instance {spec.key}")
    try:
        pipeline = Pipeline(spec, client, ProcessHome(spec.package, spec.libraries), log)
        offer(pipeline.stats.metrics)
        running = tasks.start(pipeline.run(), "run", awaited_elsewhere)
        stopping = tasks.start(stop.wait(), "stop", awaited_elsewhere)
        trouble = ""
        while not running.done():
            await asyncio.wait((running, stopping), timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
            if stopping.done():
                pipeline.stop(GRACE_S)
                await asyncio.wait((running,))
            else:
                now = pipeline.status().failureException
                if now and without_counts(now) != without_counts(trouble):
                    warn(now)
                trouble = now
        sys.stdout.flush()
        return running.result()
    finally:
        await tasks.close()
        await client.close()
        logger.removeHandler(handler)
        log.close()


def without_counts(trouble: str) -> str:
    """Remove the counts of attempts and seconds, which change while an instance waits, from an error message."""
    return _COUNT.sub("", trouble)
