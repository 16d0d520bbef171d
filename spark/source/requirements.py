"""Checks the packages of the extra ``spark``, and names the remedy where one is missing or of another version."""

from __future__ import annotations

import re
from importlib.util import find_spec

from ...errors import InvalidConfig

READS_AND_WRITES = ("pyarrow", "pandas")
"""Beside pyspark, which does not need them itself for all that it does."""
VERSIONS = {"pyspark": ((4, 0), (5,)), "pyarrow": ((18,), None), "pandas": ((2, 2), (3,))}
"""From which version on, and before which: the bounds of the extra."""


def need(*packages: str) -> None:
    """Raise unless all packages are installed.

    Raises:
        InvalidConfig: names the first one that is missing or of a wrong version, and the remedy.
    """
    from importlib.metadata import (
        PackageNotFoundError,
        version,
    )  # with it come zipfile and csv, in workers without Spark

    for package in packages:
        if find_spec(package) is None:
            raise InvalidConfig(f"{package} is not installed; pip install 'magnetar[spark]'")
        try:
            found = version(package)
        except PackageNotFoundError:
            continue  # put there by other means than pip
        parts = tuple(int(part) for part in re.findall(r"\d+", found)[:2])
        first, end = VERSIONS[package]
        if parts < first or (end is not None and parts >= end):
            wanted = f"{_text(first)} or newer" + (f", before {_text(end)}" if end is not None else "")
            raise InvalidConfig(f"{package} {found} is installed, needed is {wanted}; pip install 'magnetar[spark]'")


def _text(parts: tuple[int, ...]) -> str:
    return ".".join(map(str, parts))
