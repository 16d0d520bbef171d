"""The order in which two processes take files of tests: a long one that comes last leaves the other process idle.

xdist takes the files with most tests first, which is right where tests take equally long. Those with few and long
tests, which would come last, are named here. Tests in one process keep the order of their names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

LONG = (
    "tests/test_wheel.py",
    "tests/test_types.py",
    "tests/test_docs_commands.py",
    "tests/fuzz/test_frames.py",
    "tests/upgrade/test_upgrade.py",
    "tests/security/test_golden_rest_roles.py",
    "tests/spark/test_host_on_cluster.py",
    "tests/spark/test_notebooks.py",
    "tests/spark/test_kills.py",
)
"""Files of few tests that take long, the longest first."""


def longest_first(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return files of `LONG` first, then those with most tests; the order within a file stays as it is."""
    files = [item.nodeid.partition("::")[0] for item in items]
    counts = Counter(files)
    places = {file: (LONG.index(file) if file in LONG else len(LONG), -counts[file], file) for file in counts}
    return [items[index] for index in sorted(range(len(items)), key=lambda index: places[files[index]])]
