"""Runs the official Python client against our broker, and against Apache Pulsar to validate the tests themselves."""

from __future__ import annotations

import re
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path

import httpx
import pulsar
import pytest

from tests.support.pulsar import BROKERS, Broker
from tests.support.servers import running

SERVER = pytest.StashKey[Broker]()


@pytest.fixture(scope="session", params=BROKERS)
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    if request.param == "pulsar":
        yield request.getfixturevalue("apache_pulsar")
        return
    with running("broker", tmp_path_factory.mktemp("official")) as server:
        request.session.stash[SERVER] = server
        yield server


@pytest.fixture(scope="session")
def official_log(tmp_path_factory: pytest.TempPathFactory) -> pulsar.FileLogger:
    """Write the client's log to a file: on the console it would bury the results."""
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
    """A topic for this test only."""
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
