"""What the leader does by itself every so often, as `functions_worker.yml` says."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path

import httpx
import pytest
from magnetar.errors import ConnectionLost
from magnetar.worker.cluster.internal_topic import keep_compacted
from magnetar.worker.service import WorkerService

from tests.support.eventually import eventually
from tests.support.pulsar import Broker, own_name

from .conftest import worker_config

pytestmark = pytest.mark.slow

SOURCE = b"def process(input):\n    return input\n"


async def test_logs_are_compacted_and_load_is_evened_out_without_being_asked(broker: Broker, tmp_path: Path) -> None:
    namespace = f"public/{own_name('periodic')}"

    def worker(name: str) -> WorkerService:
        config = worker_config(broker, tmp_path / name, namespace, name)
        return WorkerService(dataclasses.replace(config, rebalance_check_s=1.0, compaction_s=1.0))

    first, late = worker("first"), worker("late")
    await first.start()
    try:
        async with httpx.AsyncClient(timeout=60) as http:
            url = f"{first.worker_url}/admin/v3/functions/public/default/{own_name('even')}"
            config = {"className": "even.process", "py": "even.py", "inputs": [own_name("in")], "parallelism": 4}
            form = (None, json.dumps(config).encode(), "application/json")
            package = ("even.py", SOURCE, "application/octet-stream")
            (await http.post(url, files=[("functionConfig", form), ("data", package)])).raise_for_status()

            async def held() -> dict[str, int]:
                found = (await http.get(f"{first.worker_url}/admin/v2/worker/assignments")).json()
                return {name: len(keys) for name, keys in found.items()}

            async def is_compacted() -> bool:
                topics = f"{broker.web_url}/admin/v2/persistent/{namespace}"
                found = [(await http.get(f"{topics}/{log}/compaction")).json() for log in ("metadata", "assignments")]
                return [one["status"] for one in found] == ["SUCCESS", "SUCCESS"]

            assert await held() == {"first": 4}
            await late.start()

            async def is_even() -> bool:
                return await held() == {"first": 2, "late": 2}

            await eventually(is_even, "two instances on each worker", timeout_s=60)
            await eventually(is_compacted, "compaction of both logs", timeout_s=60)
    finally:
        await late.stop()
        await first.stop()


async def test_compaction_is_never_asked_for_where_the_period_is_not_positive() -> None:
    async def compact(topic: str) -> None:
        raise ConnectionLost("asked")

    for period_s in (0, -1):
        running = asyncio.create_task(keep_compacted(compact, ["a"], lambda: True, period_s))
        done, _ = await asyncio.wait([running], timeout=0.05)
        assert not done
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
