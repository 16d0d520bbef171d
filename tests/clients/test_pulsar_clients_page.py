"""The Java and Go programs of docs/how-to/pulsar-clients.md run on our broker; test_docs_commands.py runs the rest."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.clients import programs
from tests.support.doc_blocks import ROOT, blocks_of
from tests.support.pulsar import Broker

pytestmark = pytest.mark.clients

PAGE = ROOT / "docs" / "how-to" / "pulsar-clients.md"


def saved(language: str, directory: Path, service_url: str) -> Path:
    """Save the program of a language as the page says, with the address of a broker."""
    [block] = [block for block in blocks_of(PAGE) if block.language == language]
    file = directory / block.file_name
    file.write_text(block.code.replace("pulsar://127.0.0.1:6650", service_url))
    return file


def test_java_program_receives_its_message(our_broker: Broker, tmp_path: Path) -> None:
    file = saved("java", tmp_path, our_broker.service_url)
    *java, _ = programs.java("Scenarios")
    done = subprocess.run([*java, str(file)], capture_output=True, text=True, timeout=120)
    assert done.stdout == "one apple\n", done.stderr


def test_go_program_receives_its_message(our_broker: Broker, tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("no go on this machine")
    file = saved("go", tmp_path, our_broker.service_url)
    done = subprocess.run(
        ["go", "run", str(file)], cwd=programs.HERE / "go", capture_output=True, text=True,
        timeout=programs.BUILD_TIMEOUT_S,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1:] == ["one apple"], done.stderr


def test_versions_on_the_page_are_those_that_are_tested() -> None:
    text = PAGE.read_text()
    assert f"org.apache.pulsar:pulsar-client:{programs.PULSAR_VERSION}" in text
    [required] = [
        line.split()[1]
        for line in (programs.HERE / "go" / "go.mod").read_text().splitlines()
        if line.strip().startswith("github.com/apache/pulsar-client-go ")
    ]
    assert f"github.com/apache/pulsar-client-go@{required}" in text
