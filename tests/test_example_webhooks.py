"""The example of webhooks, by the commands of its README: every order is in a Parquet file."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import magnetar
import pytest

from tests.support.command import Answer, call
from tests.support.ports import Reserved
from tests.support.servers import Server, running
from tests.support.waiting import wait_for

parquet = pytest.importorskip("pyarrow.parquet")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

EXAMPLE = Path(magnetar.__file__).parent / "examples" / "pipelines" / "webhooks_to_parquet"
ORDERS = 1000


def commands(changes: dict[str, str]) -> list[list[str]]:
    """Return the commands of the README, with other places than those it has."""
    text = (EXAMPLE / "README.md").read_text().replace("\\\n", " ")
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


def magnetar_of(server: Server, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answer]:
    monkeypatch.chdir(EXAMPLE)
    return lambda *arguments: call(*arguments, admin_url=server.web_url, service_url=server.service_url)


def test_every_order_is_in_a_parquet_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reserved = Reserved(1)
    port, files = reserved.numbers[0], tmp_path / "orders"
    lines = commands({"10999": str(port), "/tmp/orders": str(files)})
    with running("standalone", tmp_path / "server") as server:
        command = magnetar_of(server, monkeypatch)
        for program, *arguments in lines[:3]:
            assert program == "magnetar"
            command(*arguments).ok()
        for kind, name in (("sources", "webhooks"), ("functions", "total"), ("sinks", "archive")):

            def runs(kind: str = kind, name: str = name) -> bool:
                return bool(command(kind, "status", "--name", name).ok().json()["numRunning"] == 1)

            wait_for(runs, f"running {name}", timeout_s=60)
        url = f"http://127.0.0.1:{port}/orders"
        send = [sys.executable, "send.py", url, "open sesame", str(ORDERS)]
        done = subprocess.run(send, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, done.stdout) == (0, f"sent {ORDERS} orders\n"), done.stderr
        refused = subprocess.run([*send[:3], "wrong", "1"], capture_output=True, text=True, timeout=60, check=False)
        assert "401" in refused.stderr
        command("produce", "orders", "-s", "", "-m", "no order").ok()
        consumed = command(
            "-o", "json", "consume", "orders-archive-DLQ", "-s", "test", "-n", "1", "-p", "Earliest"
        ).ok()
        assert json.loads(consumed.out)["content"] == "no order"

        def numbers() -> list[int]:
            if not list(files.glob("*.parquet")):
                return []
            return sorted(parquet.read_table(files)["order"].to_pylist())

        wait_for(lambda: numbers() == list(range(ORDERS)), "all orders in files", timeout_s=60)
        table = parquet.read_table(files).to_pylist()
        assert {"shop": "shop-3", "order": 17, "articles": 3, "total": 0.75} in table
        for _, *arguments in lines[3:]:
            assert command(*arguments).ok().json()["numRunning"] == 1
