"""The state store for positions of sources, and the selection of connector tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.servers import Server, running

HERE = Path(__file__).parent
MARKED = re.compile(r"^pytestmark = .*pytest\.mark\.connectors", re.MULTILINE)
LIBRARIES = (
    "boto3", "confluent_kafka", "deltalake", "moto", "nats", "opensearchpy", "paho", "pika", "psycopg", "pyarrow",
    "pyiceberg", "pymongo", "pymysql", "redis", "sqlalchemy", "websockets",
)  # fmt: skip
"""Libraries in the extra of all connectors, and those that ``make test-connectors`` adds."""


@pytest.fixture(scope="session")
def state_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("state-store", tmp_path_factory.mktemp("state")) as server:
        yield server


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Ignore files whose tests all require libraries of ``make test-connectors`` that are not installed."""
    if collection_path.suffix == ".py" and MARKED.search(collection_path.read_text()):
        return True if any(find_spec(name) is None for name in LIBRARIES) else None
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group the conformance tests that need the same server; all other tests run first.

    If two processes share the tests (``--dist loadgroup``), other files are not split between them.
    """
    for item in items:
        if item.get_closest_marker("xdist_group") is None and HERE in item.path.parents:
            item.add_marker(pytest.mark.xdist_group(item.path.name))

    def server_of(item: pytest.Item) -> str:
        mark = item.get_closest_marker("xdist_group")
        return str(mark.args[0]) if mark is not None and item.path.name == "test_conformance.py" else ""

    items.sort(key=server_of)
