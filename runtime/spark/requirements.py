"""What the extra ``spark`` brings, and the line that asks for it where it is missing."""

from __future__ import annotations

from importlib.util import find_spec

from ...errors import InvalidConfig

READS_AND_WRITES = ("pyarrow", "pandas")
"""Beside pyspark, which does not need them itself for all that it does."""


def need(*packages: str) -> None:
    """Refuse to go on unless all packages are there.

    Raises:
        InvalidConfig: names the first one that is missing, and the remedy.
    """
    for package in packages:
        if find_spec(package) is None:
            raise InvalidConfig(f"{package} is not installed; pip install 'magnetar[spark]'")
