"""The official Python client against a broker.

By default the broker is ours, started once for the session as a child process. With MAGNETAR_TEST_PULSAR_URL and
MAGNETAR_TEST_PULSAR_WEB_URL the same tests run against any other broker: that is how they were proven right, on a
real Apache Pulsar, before ours existed.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pulsar
import pytest

from tests.support.servers import Server, running

SERVER = pytest.StashKey[Server]()


@dataclass(frozen=True)
class Broker:
    """Where the broker under test listens."""

    service_url: str
    web_url: str


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    foreign = os.environ.get("MAGNETAR_TEST_PULSAR_URL")
    if foreign:
        yield Broker(foreign, os.environ["MAGNETAR_TEST_PULSAR_WEB_URL"])
        return
    with running("broker", tmp_path_factory.mktemp("official")) as server:
        request.session.stash[SERVER] = server
        yield Broker(server.service_url, server.web_url)


@pytest.fixture(scope="session")
def official_log(tmp_path_factory: pytest.TempPathFactory) -> pulsar.FileLogger:
    """The client's log goes into a file: on the console it would bury the results."""
    log_file: Path = tmp_path_factory.mktemp("official-client") / "client.log"
    return pulsar.FileLogger(pulsar.LoggerLevel.Info, str(log_file))


@pytest.fixture
def client(broker: Broker, official_log: pulsar.FileLogger) -> Iterator[pulsar.Client]:
    client = pulsar.Client(broker.service_url, logger=official_log, operation_timeout_seconds=10)
    yield client
    client.close()


@pytest.fixture
def admin(broker: Broker) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{broker.web_url}/admin/v2/", timeout=10) as client:
        yield client


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic of this test's own."""
    name = re.sub(r"\W+", "-", request.node.name).strip("-")
    return f"persistent://public/default/{name}-{uuid.uuid4().hex[:8]}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of the broker's log with a failed test."""
    report = yield
    server = item.session.stash.get(SERVER, None)
    if server is not None and report.failed:
        report.sections.append(("broker log", server.log_tail()))
    return report
