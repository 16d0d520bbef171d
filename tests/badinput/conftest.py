"""One standalone for all the bad input: what a user does wrong must not hurt what already runs."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from tests.support.functions import Functions
from tests.support.servers import Server, running

SERVER = pytest.StashKey[Server]()


@pytest.fixture(scope="session")
def standalone(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("standalone", tmp_path_factory.mktemp("badinput")) as server:
        request.session.stash[SERVER] = server
        yield server


@pytest.fixture
def functions(standalone: Server) -> Iterator[Functions]:
    with Functions(standalone.web_url) as it:
        yield it


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tell tests that schemathesis makes apart: pytest 9.2 leaves the path out of their ids."""
    label = getattr(item, "operation_label", None)
    if label and "[" not in item.nodeid:
        item._id = item.id.with_params(label)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    server = item.session.stash.get(SERVER, None)
    if server is not None and report.failed:
        report.sections.append(("standalone log", server.log_tail()))
    return report
