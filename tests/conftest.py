"""What tests of several folders share: the Apache Pulsar of a session, and those that tests kill."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.pulsar import URL, ApachePulsar, running_pulsar, what_is_wrong

# The same examples each time, however long a busy machine takes for them; MAGNETAR_TEST_EXPLORE looks for new ones.
settings.register_profile(
    "repeatable", derandomize=not os.environ.get("MAGNETAR_TEST_EXPLORE"), deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
settings.load_profile("repeatable")

SHARED = pytest.StashKey[ApachePulsar]()


def pytest_configure(config: pytest.Config) -> None:
    if wrong := what_is_wrong(os.environ):
        pytest.exit(wrong, returncode=pytest.ExitCode.USAGE_ERROR)


def pytest_runtest_setup(item: pytest.Item) -> None:
    it = item.session.stash.get(SHARED, None)
    if it is not None and it.is_dead:
        said = (
            "the Apache Pulsar of this session, which no test may kill, has ended; nothing can be tested on it any more"
        )
        pytest.exit(f"{said}:\n{it.log_tail()}", returncode=pytest.ExitCode.TESTS_FAILED)


@pytest.fixture(scope="session")
def apache_pulsar(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApachePulsar]:
    """One for all tests that leave it alive."""
    with running_pulsar(tmp_path_factory.mktemp("pulsar")) as it:
        request.session.stash[SHARED] = it
        try:
            yield it
        finally:
            del request.session.stash[SHARED]


@pytest.fixture(scope="module")
def mortal_pulsar(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApachePulsar]:
    """One of the module's own, for tests that kill it: 4.0.7 does not survive that as surely as ours."""
    if os.environ.get(URL):
        yield request.getfixturevalue("apache_pulsar")
        return
    with running_pulsar(tmp_path_factory.mktemp("mortal-pulsar")) as it:
        yield it
