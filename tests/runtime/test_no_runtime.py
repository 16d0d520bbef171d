"""An instance whose record asks for a runtime that this worker does not have says so, and stops no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from magnetar.errors import FunctionLoadError
from magnetar.runtime.manager import InstanceEnvironment, RuntimeManager


@pytest.mark.parametrize("options", ['{"runtimeEnv": "quantum"}', "no JSON"])
async def test_a_runtime_that_is_not_there_is_a_reason_of_its_instance(options: str, tmp_path: Path) -> None:
    async def fetch(_location: Any) -> Path:
        return tmp_path

    around = InstanceEnvironment(worker_id="w", service_url="", admin_url="", data_dir=tmp_path)
    manager = RuntimeManager({}, fetch, around)
    start = manager._starter(options)
    with pytest.raises(FunctionLoadError, match=r"quantum|JSON"):
        await start(None)  # type: ignore[arg-type]
    await manager.close()
