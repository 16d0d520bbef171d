"""Run real processes for tests that kill them."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

import pytest

from tests.support.cluster import Cluster
from tests.support.pulsar import BROKERS
from tests.support.servers import Server, server

from .mayhem import StatefulCluster


class Logged(Protocol):
    """An object with a log to show for a failed test."""

    @property
    def command(self) -> tuple[str, ...]: ...

    def log_tail(self) -> str: ...


SERVER = pytest.StashKey[Logged]()
AnyCluster = TypeVar("AnyCluster", bound=Cluster)


@pytest.fixture
def broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    """A broker. Modules can add SETTINGS, lines of `broker.conf`."""
    flags: tuple[str, ...] = ()
    if settings := getattr(request.module, "SETTINGS", ""):
        file = tmp_path / "broker.conf"
        file.write_text(settings)
        flags = ("--config", str(file))
    yield from _started("broker", tmp_path, request, *flags)


@pytest.fixture
def standalone(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    yield from _started("standalone", tmp_path, request)


def _started(kind: str, directory: Path, request: pytest.FixtureRequest, *flags: str) -> Iterator[Server]:
    it = server(kind, directory, *flags)
    request.node.stash[SERVER] = it
    try:
        it.start()
        yield it
    finally:
        it.stop()


def _running(cluster: AnyCluster) -> Iterator[AnyCluster]:
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def _whole(cluster: AnyCluster, request: pytest.FixtureRequest) -> AnyCluster:
    """Yield a cluster with all its processes running."""
    request.node.stash[SERVER] = cluster
    cluster.revive()
    cluster.assemble()
    return cluster


@pytest.fixture(scope="module")
def stateful_started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StatefulCluster]:
    yield from _running(StatefulCluster(tmp_path_factory.mktemp("cluster")))


@pytest.fixture
def stateful(stateful_started: StatefulCluster, request: pytest.FixtureRequest) -> StatefulCluster:
    """Broker, state store and three workers, all running."""
    return _whole(stateful_started, request)


@pytest.fixture(scope="module", params=BROKERS)
def started(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker and three workers. A module that does not kill the broker sets PULSAR to the fixture to use."""
    name = getattr(request.module, "PULSAR", "mortal_pulsar")
    pulsar = request.getfixturevalue(name) if request.param == "pulsar" else None
    yield from _running(Cluster(tmp_path_factory.mktemp("cluster"), pulsar))


@pytest.fixture
def cluster(started: Cluster, request: pytest.FixtureRequest) -> Cluster:
    """The cluster with all its workers and a stable leader."""
    return _whole(started, request)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of the server's log for a failed test."""
    report = yield
    it = item.stash.get(SERVER, None)
    if it is not None and report.failed:
        report.sections.append((f"{it.command[0]} log", it.log_tail()))
    return report
