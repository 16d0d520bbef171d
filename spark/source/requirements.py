"""Checks the packages of the extra ``spark``; errors say how to install missing or incompatible packages."""

from __future__ import annotations

import re
from importlib.util import find_spec

from ...errors import InvalidConfig

READS_AND_WRITES = ("pyarrow", "pandas")
"""Packages required in addition to pyspark, which itself requires them only for some functions."""
VERSIONS = {"pyspark": ((4, 0), (5,)), "pyarrow": ((18,), None), "pandas": ((2, 2), (3,))}
"""Minimum version and first incompatible version of each package, as in the extra."""


def need(*packages: str) -> None:
    """Raise unless all packages are installed.

    Raises:
        InvalidConfig: a package is missing or incompatible; the message includes the remedy.
    """
    from importlib.metadata import (
        PackageNotFoundError,
        version,
    )  # imports zipfile and csv, which workers without Spark do not need

    for package in packages:
        if find_spec(package) is None:
            raise InvalidConfig(f"{package} is not installed: run pip install 'magnetar[spark]'")
        try:
            found = version(package)
        except PackageNotFoundError:
            continue  # installed by other means than pip
        parts = tuple(int(part) for part in re.findall(r"\d+", found)[:2])
        first, end = VERSIONS[package]
        if parts < first or (end is not None and parts >= end):
            wanted = f"{_text(first)} or newer" + (f", before {_text(end)}" if end is not None else "")
            raise InvalidConfig(
                f"{package} {found} is installed, but {wanted} is required: run pip install 'magnetar[spark]'"
            )


def _text(parts: tuple[int, ...]) -> str:
    return ".".join(map(str, parts))
