"""What tests of several folders share: the one Apache Pulsar of a session."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.support.pulsar import ApachePulsar, running_pulsar, what_is_wrong


def pytest_configure(config: pytest.Config) -> None:
    if wrong := what_is_wrong(os.environ):
        pytest.exit(wrong, returncode=pytest.ExitCode.USAGE_ERROR)


@pytest.fixture(scope="session")
def apache_pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApachePulsar]:
    with running_pulsar(tmp_path_factory.mktemp("pulsar")) as it:
        yield it
