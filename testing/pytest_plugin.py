"""The pytest plugin: a fixture, and options to run the same tests on a real broker.

The plugin is not loaded automatically, so that it costs nothing if unused. Load it in the tests' ``conftest.py``:

    pytest_plugins = ["magnetar.testing.pytest_plugin"]
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from .cluster import ADMIN_URL_VARIABLE, SERVICE_URL_VARIABLE
from .function_test import FunctionTest

MakeFunction = Callable[..., FunctionTest]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the command-line options."""
    group = parser.getgroup("magnetar")
    group.addoption(
        "--magnetar-service-url", metavar="URL",
        help=f"Test functions on this broker, pulsar://host:port, not in memory (default: ${SERVICE_URL_VARIABLE}).",
    )  # fmt: skip
    group.addoption(
        "--magnetar-admin-url", metavar="URL",
        help=f"REST URL of that broker, http://host:port (default: ${ADMIN_URL_VARIABLE}, or port 8080 for 6650).",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Read the options, also for functions tested without the fixture."""
    for option, variable in (("service_url", SERVICE_URL_VARIABLE), ("admin_url", ADMIN_URL_VARIABLE)):
        if given := config.getoption(f"magnetar_{option}"):
            os.environ[variable] = given


@pytest.fixture
def magnetar_function() -> Iterator[MakeFunction]:
    """Return a factory for `FunctionTest` whose functions are stopped at the end of the test."""
    with ExitStack() as running:

        def start(function: object, **settings: Any) -> FunctionTest:
            return running.enter_context(FunctionTest(function, **settings))

        yield start
