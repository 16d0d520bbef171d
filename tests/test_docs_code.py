"""Code in the documentation is code: Python runs, shell lines parse, YAML, TOML and JSON can be read.

What needs a server runs in `test_docs_commands.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from tests.support.doc_blocks import CHANGES_THE_MACHINE, COMMAND, OUTSIDE, PAGES, ROOT, Block, blocks_of
from tests.support.doc_reader import is_client

LANGUAGES = {"python", "sh", "output", "text", "yaml", "toml", "json", "sql", "java", "go"}


def blocks(*languages: str) -> list[Block]:
    return [block for page in PAGES for block in blocks_of(page) if block.language in languages]


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


@by_place([block for block in blocks("python") if not (block.not_run or is_client(block))])
def test_python_runs(block: Block) -> None:
    run(block, block.code)


@by_place([block for block in blocks("python") if block.not_run])
def test_python_that_is_not_run_compiles(block: Block) -> None:
    compile(block.code, block.where, "exec")


@by_place(blocks("sh"))
def test_shell_parses(block: Block) -> None:
    done = subprocess.run(["bash", "-n"], input=block.code, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@by_place(blocks("yaml", "toml", "json"))
def test_data_can_be_read(block: Block) -> None:
    read: dict[str, Callable[[str], Any]] = {"yaml": yaml.safe_load, "toml": tomllib.loads, "json": json.loads}
    assert read[block.language](block.code)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_block_names_what_becomes_of_it(page: Path) -> None:
    assert [f"{block.where} {block.language!r}" for block in blocks_of(page) if block.language not in LANGUAGES] == []
    assert page.read_text().count("```") == 2 * len(list(blocks_of(page)))


@by_place([block for block in blocks("text") if not block.not_run])
def test_text_holds_no_commands(block: Block) -> None:
    assert COMMAND.search(block.code) is None, f"{block.where}: name the language sh"


@by_place(blocks("output"))
def test_output_follows_commands(block: Block) -> None:
    found = list(blocks_of(block.page))
    before = found[found.index(block) - 1]
    assert before.language == "sh"
    assert not before.not_run


@by_place([block for block in blocks("sh") if not block.not_run])
def test_commands_that_run_leave_the_machine_alone(block: Block) -> None:
    assert CHANGES_THE_MACHINE.search(block.code) is None, f"{block.where}: mark it `<!-- not run: REASON -->`"
    assert OUTSIDE.search(block.code) is None, f"{block.where}: use paths below /tmp, or relative ones"


NOT_RUN = {
    "CONTRIBUTING.md": ["checks and tests the repository"],
    "docs/development/benchmarks.md": [
        "takes hours, and needs a quiet machine",
        "synopsis of a program that you provide",
    ],
    "docs/development/connector-tests.md": ["installs libraries and starts servers"],
    "docs/development/crash-tests.md": ["takes an hour"],
    "docs/development/documentation.md": ["installs MkDocs"],
    "docs/development/packaging.md": ["builds wheels"],
    "docs/development/pulsar-tests.md": ["needs an Apache Pulsar", "synopsis of a program that you provide"],
    "docs/development/soak-tests.md": ["takes hours"],
    "docs/development/tests.md": ["runs the test suite"],
    "README.md": ["clones this repository and installs it", "installs the repository and runs its tests"],
    "docs/cli.md": ["needs zsh and fish"],
    "docs/explanation/spark-functions.md": ["needs the extra spark; tests/spark runs such programs"],
    "docs/get-started/install.md": ["clones this repository and installs it"],
    "docs/get-started/spark.md": [
        "installs from the package index",
        *4 * ["needs the extra spark; tests/spark runs such programs"],
    ],
    "docs/how-to/consume.md": ["needs pandas"],
    "docs/how-to/read-a-table.md": ["needs a PostgreSQL server; make test-connectors runs such a source"],
    "docs/how-to/requirements.md": ["installs from the package index"],
    "docs/how-to/spark-cluster.md": ["needs several machines; examples/spark/cluster.py starts all on one"],
    "docs/how-to/spark-credentials.md": ["needs a broker with TLS and tokens"],
    "docs/how-to/spark-dataframe-functions.md": ["needs the extra spark; tests/spark runs such programs"],
    "docs/how-to/spark-delta-iceberg.md": [
        "needs jars of Delta; make test-spark-versions writes such tables",
        "installs from the package index",
        "downloads from Maven's repository",
    ],
    "docs/how-to/spark-functions.md": ["needs the extra spark; tests/spark runs such programs"],
    "docs/how-to/spark-read.md": 2 * ["needs the extra spark; tests/spark runs such programs"],
    "docs/how-to/spark-requirements.md": ["needs the extra spark; tests/spark runs such programs"],
    "docs/how-to/spark-scheduled-runs.md": ["needs the extra spark; tests/spark runs such programs"],
    "docs/get-started/first-function.md": ["clones this repository and installs it"],
    "docs/how-to/workers-on-pulsar.md": ["needs an Apache Pulsar; make test-pulsar runs workers on one"],
    "docs/isolation.md": ["needs root, and adds a system user"],
    "docs/operations.md": ["listens on all addresses", "updates the checkout and installs it"],
    "docs/reference/command-line.md": ["names a host and credentials"],
    "docs/reference/commands.md": 4 * ["synopsis; tests/test_docs.py looks for each command and flag"],
    "docs/reference/servers.md": ["synopsis; tests/test_docs.py looks for each command and flag"],
    "docs/reference/spark-functions.md": ["needs the extra spark; tests/spark runs such programs"],
    "docs/reference/spark-versions.md": ["installs from the package index"],
    "docs/tracing.md": ["installs from the package index"],
    "examples/pipelines/kafka_to_kafka/README.md": [
        *3 * ["needs a Kafka broker; make test-connectors runs this pipeline on one"]
    ],
    "examples/pipelines/postgres_to_database/README.md": [
        "needs a PostgreSQL server; make test-connectors runs this pipeline on one"
    ],
    "examples/pipelines/webhooks_to_parquet/README.md": [
        *2 * ["needs pyarrow; make test-connectors runs this pipeline"]
    ],
}
"""Every block that no test runs, and why."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_blocks_that_are_not_run_are_listed(page: Path) -> None:
    reasons = [block.not_run for block in blocks_of(page) if block.not_run]
    assert reasons == NOT_RUN.get(page.relative_to(ROOT).as_posix(), [])
