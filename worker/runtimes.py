"""Where the real runtimes are made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from ..runtime.manager import RuntimeManager
from ..wire.functions_pb2 import PackageLocationMetaData
from .config import WorkerConfig


async def make_runtime_manager(
    config: WorkerConfig, worker_id: str, fetch_package: Callable[[PackageLocationMetaData], Awaitable[Path]]
) -> RuntimeManager:
    """Return a runtime manager with all runtimes of this version."""
    raise NotImplementedError
