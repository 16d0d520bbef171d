"""Fixtures and hooks for all tests: the Apache Pulsar of a session, those that tests kill, and samples of tests."""

from __future__ import annotations

import logging
import os
import signal
from collections import Counter
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings
from magnetar.security.audit import LOGGER as AUDIT_LOGGER

from tests.support.order import longest_first
from tests.support.pulsar import URL, ApachePulsar, running_pulsar, what_is_wrong
from tests.support.sample import EXAMPLES, NAMES, Sample, example_count, percent_of, sample_of

# The same examples each time, however long a busy machine takes for them; MAGNETAR_TEST_EXPLORE looks for new ones.
settings.register_profile(
    "repeatable", derandomize=not os.environ.get("MAGNETAR_TEST_EXPLORE"), deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
settings.load_profile("repeatable")

SHARED = pytest.StashKey[ApachePulsar]()
SAMPLES = pytest.StashKey[list[Sample]]()
SAMPLED = pytest.StashKey[list[str]]()
EXAMPLES_PERCENT = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    if wrong := what_is_wrong(os.environ):
        pytest.exit(wrong, returncode=pytest.ExitCode.USAGE_ERROR)
    try:
        config.stash[EXAMPLES_PERCENT] = percent_of(os.environ, EXAMPLES)
        config.stash[SAMPLES] = [sample for mark in NAMES if (sample := sample_of(os.environ, mark))]
    except ValueError as error:
        pytest.exit(str(error), returncode=pytest.ExitCode.USAGE_ERROR)
    config.stash[SAMPLED] = []
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a job in the background, whose children inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests that a sample excludes, after `-m` and `-k`, and order long files first.

    Failed tests are rerun regardless of the sample. xdist would silently run only one of tests with the same id.
    """
    if twice := [node_id for node_id, count in Counter(item.nodeid for item in items).items() if count > 1]:
        raise pytest.UsageError(
            f"{len(twice)} ids are of more than one test, as {twice[0]}; give each an id of its own"
        )
    for sample in [] if config.getoption("lf", False) else config.stash[SAMPLES]:
        of_it = [item.nodeid for item in items if item.get_closest_marker(sample.mark)]
        left_out = set(of_it) - sample.chosen(of_it)
        if of_it:
            kept = len(of_it) - len(left_out)
            config.stash[SAMPLED].append(f"{kept} of {len(of_it)} {NAMES[sample.mark]} are in the sample")
        if left_out:
            config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
            items[:] = [item for item in items if item.nodeid not in left_out]
    if config.stash[EXAMPLES_PERCENT] < 100:
        take_fewer_examples(items, config.stash[EXAMPLES_PERCENT])
    if os.environ.get("PYTEST_XDIST_WORKER"):
        items[:] = longest_first(items)


def take_fewer_examples(items: list[pytest.Item], percent: int) -> None:
    """Make each property test run a share of its examples: the first ones, which are always the same."""
    name = "_hypothesis_internal_use_settings"  # a test that was given its settings by a decorator has no other place
    for test in {getattr(item, "function", None) for item in items}:
        given = getattr(test, name, None)
        if isinstance(given, settings):
            setattr(test, name, settings(given, max_examples=example_count(given.max_examples, percent)))


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Report the samples before tests run; with xdist, each process selects the same ones."""
    header = [f"a sample of the {NAMES[sample.mark]}: {sample}" for sample in config.stash[SAMPLES]]
    percent = config.stash[EXAMPLES_PERCENT]
    return (
        [*header, f"property tests run {percent} % of their examples: {EXAMPLES}={percent}"]
        if percent < 100
        else header
    )


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    return config.stash[SAMPLED]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Undo changes to logging by a server that ran in this process, whose stream is closed after the test."""
    loggers = [logging.getLogger(name) for name in (None, "magnetar", AUDIT_LOGGER)]
    before = [(logger, logger.handlers[:], logger.filters[:], logger.level) for logger in loggers]
    try:
        return (yield)
    finally:
        for logger, handlers, filters, level in before:
            logger.handlers[:], logger.filters[:] = handlers, filters
            logger.setLevel(level)


def pytest_runtest_setup(item: pytest.Item) -> None:
    it = item.session.stash.get(SHARED, None)
    if it is not None and it.is_dead:
        said = (
            "the Apache Pulsar of this session, which no test may kill, has ended; nothing can be tested on it any more"
        )
        pytest.exit(f"{said}:\n{it.log_tail()}", returncode=pytest.ExitCode.TESTS_FAILED)


@pytest.fixture(scope="session")
def apache_pulsar(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApachePulsar]:
    """An Apache Pulsar shared by all tests that do not kill it."""
    with running_pulsar(tmp_path_factory.mktemp("pulsar")) as it:
        request.session.stash[SHARED] = it
        try:
            yield it
        finally:
            del request.session.stash[SHARED]


@pytest.fixture(scope="module")
def mortal_pulsar(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApachePulsar]:
    """An Apache Pulsar of one module, for tests that kill it: 4.0.7 does not survive that as reliably as ours."""
    if os.environ.get(URL):
        yield request.getfixturevalue("apache_pulsar")
        return
    with running_pulsar(tmp_path_factory.mktemp("mortal-pulsar")) as it:
        yield it
