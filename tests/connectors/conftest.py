"""The state store that keeps the positions of sources."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.servers import Server, running


@pytest.fixture(scope="session")
def state_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("state-store", tmp_path_factory.mktemp("state")) as server:
        yield server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of the conformance suite that need the same server beside each other; all others stay first."""

    def server_of(item: pytest.Item) -> str:
        mark = item.get_closest_marker("xdist_group")
        return str(mark.args[0]) if mark is not None and item.path.name == "test_conformance.py" else ""

    items.sort(key=server_of)
