"""Code in the documentation is code: Python runs, shell lines parse, YAML, TOML and JSON can be read."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import magnetar
import pytest
import yaml
from magnetar.client.blocking.client import Client
from magnetar.client.config import ConsumerConfig
from magnetar.testing.broker_thread import BrokerThread

ROOT = Path(magnetar.__file__).parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
SERVICE_URL = "pulsar://127.0.0.1:6650"
WITH_A_BROKER = {"client.md"}
"""Pages whose blocks run against a broker, each against one of its own. Blocks of other pages that name its address are
only compiled; the examples that they are taken from run in `test_examples.py` and in Spark's tests."""


class Block(NamedTuple):
    page: Path
    line: int
    language: str
    code: str

    @property
    def where(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(*languages: str) -> list[Block]:
    found = []
    for page in PAGES:
        text = page.read_text()
        for match in re.finditer(r"^```(\w+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            if match[1] in languages:
                found.append(Block(page, text.count("\n", 0, match.start()) + 2, match[1], match[2]))
    return found


def by_place(found: list[Block]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("block", found, ids=lambda block: block.where)


def run(block: Block, code: str) -> None:
    """Run a block, or skip it where it shows another library that is not installed."""
    module = ModuleType("documentation")
    sys.modules[module.__name__] = module  # where dataclasses look for the names in their annotations
    try:
        exec(compile(code, block.where, "exec", dont_inherit=True), vars(module))
    except ModuleNotFoundError as missing:
        if (missing.name or "magnetar").split(".")[0] == "magnetar":
            raise
        pytest.skip(f"{missing.name} is not installed")
    finally:
        del sys.modules[module.__name__]


@by_place([block for block in blocks("python") if SERVICE_URL not in block.code and "open_session" not in block.code])
def test_python_runs(block: Block) -> None:
    if block.page.name != "README.md" or block.page.parent == ROOT:
        run(block, block.code)


@by_place([block for block in blocks("python") if SERVICE_URL in block.code])
def test_python_that_needs_a_server_compiles(block: Block) -> None:
    compile(block.code, block.where, "exec")


def send_an_order(service_url: str) -> None:
    """Publish what the block about messages that fail waits for, to the subscription that it consumes."""
    with Client(service_url) as client:
        client.subscribe("orders", "billing", ConsumerConfig(type="Shared")).close()
        client.create_producer("orders").send(b"an order")


BEFORE: dict[str, Callable[[str], None]] = {"ConsumerDeadLetterPolicy": send_an_order}
"""What has to be there for a block, by a word in it."""


@pytest.mark.slow
@by_place([block for block in blocks("python") if block.page.name in WITH_A_BROKER])
def test_python_of_the_client_runs(block: Block, tmp_path: Path) -> None:
    with BrokerThread(tmp_path) as broker:
        for word, prepare in BEFORE.items():
            if word in block.code:
                prepare(broker.service_url)
        failures: list[BaseException] = []

        def work() -> None:
            try:
                run(block, block.code.replace(SERVICE_URL, broker.service_url))
            except BaseException as error:  # noqa: BLE001  also a skip, which is to be raised in the test's thread
                failures.append(error)

        thread = threading.Thread(target=work, daemon=True)  # so that one that waits for ever fails, and does not hang
        thread.start()
        thread.join(30)
        assert not thread.is_alive(), f"{block.where} waits for something"
        for failure in failures:
            raise failure


@by_place(blocks("sh", "bash"))
def test_shell_parses(block: Block) -> None:
    done = subprocess.run(["bash", "-n"], input=block.code, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@by_place(blocks("yaml", "toml", "json"))
def test_data_can_be_read(block: Block) -> None:
    read: dict[str, Callable[[str], Any]] = {"yaml": yaml.safe_load, "toml": tomllib.loads, "json": json.loads}
    assert read[block.language](block.code)


def test_every_block_names_a_language_that_is_tested_or_none() -> None:
    known = {"python", "sh", "bash", "yaml", "toml", "json", "sql"}
    found = {(page.name, name) for page in PAGES for name in re.findall(r"^```(\w+)$", page.read_text(), re.MULTILINE)}
    assert {one for one in found if one[1] not in known} == set()
