"""Order test files for two processes: a long file at the end would leave the other process idle.

xdist starts with the files with most tests, which is right if tests take equally long. Files with few long tests, which
would come last, are listed here. Tests in one process keep the order of their names.
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
"""Files of few tests that take long, longest first."""


def longest_first(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the files of `LONG` first, then those with most tests; the order within a file does not change."""
    files = [item.nodeid.partition("::")[0] for item in items]
    counts = Counter(files)
    places = {file: (LONG.index(file) if file in LONG else len(LONG), -counts[file], file) for file in counts}
    return [items[index] for index in sorted(range(len(items)), key=lambda index: places[files[index]])]
