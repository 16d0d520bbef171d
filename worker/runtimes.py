"""Factory of the runtimes of a worker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from ..runtime.interface import Runtime
from ..runtime.manager import InstanceEnvironment, RuntimeManager
from ..runtime.process.forked import ForkedProcess
from ..runtime.process.runtime import ProcessRuntime
from ..runtime.spark.host_config import SparkConfig
from ..runtime.spark.runtime import SparkRuntime
from ..runtime.thread.runtime import ThreadRuntime
from ..wire.functions_pb2 import PackageLocationMetaData
from .config import WorkerConfig


async def make_runtime_manager(
    config: WorkerConfig,
    worker_id: str,
    fetch_package: Callable[[PackageLocationMetaData], Awaitable[Path]],
    zygote: ForkedProcess | None = None,
) -> RuntimeManager:
    """Return a runtime manager with all runtimes of this version; nothing runs before its first `apply`.

    Args:
        config: the worker's settings.
        worker_id: its id.
        fetch_package: where packages come from.
        zygote: what process instances are forked from; None: it is started by exec.
    """
    environment = InstanceEnvironment(
        worker_id=worker_id,
        service_url=config.service_url,
        admin_url=config.admin_url,
        data_dir=config.data_dir,
        cluster=config.cluster,
        state_url=config.state_url,
        locks_topic=config.topic(config.locks_topic),
    )
    spark = SparkConfig(
        data_dir=config.data_dir,
        master=config.spark_master,
        heap=config.spark_driver_memory,
        settings=config.spark_settings,
        driver_host=config.reachable_host,
        idle_s=config.spark_idle_s,
    )
    runtimes: dict[str, Runtime] = {
        "process": ProcessRuntime(zygote, config.liveness_check_ms / 1000),
        "thread": ThreadRuntime(config.service_url),
        "spark": SparkRuntime(spark),
    }
    return RuntimeManager(runtimes, fetch_package, environment)
