"""Whether deduplication is on for a topic, by its policy, its namespace's or the broker's setting."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from magnetar.client.deduplication import DeduplicationOff, require_on

from tests.support.servers import running


@pytest.mark.parametrize("default", [True, False])
def test_the_nearest_setting_decides(tmp_path: Path, default: bool) -> None:
    (tmp_path / "broker.conf").write_text(f"brokerDeduplicationEnabled={str(default).lower()}\n")
    with running("broker", tmp_path, "--config", str(tmp_path / "broker.conf")) as server:
        admin = httpx.Client(base_url=f"{server.web_url}/admin/v2", timeout=30)

        def is_on(topic: str) -> bool:
            try:
                require_on(server.web_url, f"persistent://public/default/{topic}")
            except DeduplicationOff:
                return False
            return True

        assert is_on("missing") == default
        admin.put("/persistent/public/default/existing")
        assert is_on("existing") == default
        namespace = "/namespaces/public/default/deduplication"
        assert admin.post(namespace, json=not default).status_code == 204
        assert is_on("missing-too") != default
        assert is_on("existing") != default
        policy = "/persistent/public/default/existing/deduplicationEnabled"
        assert admin.post(policy, json=default).status_code == 204
        assert is_on("existing") == default
        admin.close()
