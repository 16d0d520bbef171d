"""What the guard of the process's logging looks at, where there are thousands of loggers."""

from __future__ import annotations

import logging
import logging.config
from collections.abc import Iterator

import pytest
from magnetar.runtime.thread.routing import LOOKED_AT_ONCE, LoggingGuard

NAMES = [f"fn_many_{number}" for number in range(3 * LOOKED_AT_ONCE)]


@pytest.fixture
def guard() -> Iterator[LoggingGuard]:
    loggers = logging.getLogger().manager.loggerDict
    before = set(loggers)
    for name in NAMES:
        logging.getLogger(name)
    guard = LoggingGuard()
    yield guard
    guard.end()
    for name in set(loggers) - before:
        del loggers[name]


def disabled() -> int:
    return sum(logging.getLogger(name).disabled for name in NAMES)


def test_a_configuration_that_disables_all_is_mended_at_once(guard: LoggingGuard) -> None:
    logging.config.dictConfig({"version": 1})
    assert disabled() == len(NAMES)
    guard.mend()
    assert disabled() == 0


def test_a_single_logger_that_is_disabled_is_found_within_a_round(guard: LoggingGuard) -> None:
    for name in (NAMES[0], NAMES[-1]):
        guard.mend()
        logging.getLogger(name).disabled = True
        rounds = 2 * (len(logging.getLogger().manager.loggerDict) // LOOKED_AT_ONCE + 1)
        for _ in range(rounds):
            guard.mend()
        assert disabled() == 0


def test_one_call_looks_at_no_more_loggers_than_there_are_in_its_part(guard: LoggingGuard) -> None:
    parts = [guard._next() for _ in range(10)]
    assert max(map(len, parts)) <= LOOKED_AT_ONCE
    assert set(NAMES) <= {name for part in parts for name in part}
