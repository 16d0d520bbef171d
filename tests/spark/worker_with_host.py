"""A process that hosts Spark functions as a worker does: it starts a run and waits to be killed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from magnetar.instance.spec import from_json
from magnetar.runtime.spark.host_config import SparkConfig
from magnetar.runtime.spark.runtime import SparkRuntime

from tests.spark.counting_host import PROGRAM


async def main() -> None:
    data_dir, spec_file = map(Path, sys.argv[1:])
    config = SparkConfig(data_dir=data_dir, master="local[2]", heap="512m", program=PROGRAM, starts_ahead=False)
    runtime = SparkRuntime(config)
    instance = await runtime.start(from_json(spec_file.read_text()))
    while not (await instance.status()).running:  # noqa: ASYNC110  it can only be asked for
        await asyncio.sleep(0.05)
    await instance.begin_run("r1")
    await asyncio.sleep(600)


asyncio.run(main())
