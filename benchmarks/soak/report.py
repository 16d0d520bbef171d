"""The report at the end of a soak, and its exit code."""

from __future__ import annotations

import logging
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .settings import Settings, settings_of


@dataclass
class Verdict:
    """Results of a soak, as lines.

    Attributes:
        notes: findings.
        missed: failed checks; empty if all passed.
    """

    notes: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)

    def compare(self, name: str, said: str, is_met: bool) -> None:
        """Add a finding, as a failed check unless it is met."""
        (self.notes if is_met else self.missed).append(f"{name}: {said}")


def report(run: Callable[[Settings, Path, random.Random], Verdict], seconds: float) -> int:
    """Run a soak with the settings from the environment (see `conclude`).

    Args:
        run: called with the settings, an empty directory and a random generator.
        seconds: default duration of the load.

    Returns:
        exit code: 0 if all checks passed, 1 if one failed, 2 if the settings are invalid.
    """
    try:
        settings = settings_of(os.environ, seconds)
    except ValueError as error:
        print(f"soak: {error}", file=sys.stderr)
        return 2
    print(f"soak of {settings.seconds:g} s, seed {settings.seed}", flush=True)
    return conclude(lambda directory: run(settings, directory, random.Random(settings.seed)))


def conclude(run: Callable[[Path], Verdict]) -> int:
    """Run a soak and print its verdict; keep its files only if a check failed.

    Args:
        run: called with an empty directory.

    Returns:
        exit code: 0 if all checks passed, 1 if one failed.
    """
    logging.basicConfig(level=logging.ERROR)  # lost connections are expected
    directory = Path(tempfile.mkdtemp(prefix="magnetar-soak-"))
    try:
        verdict = run(directory)
    except Exception as error:  # noqa: BLE001  any error is reported as the cause
        print(f"failed: {str(error).splitlines()[0] or type(error).__name__}; data and logs are in {directory}")
        return 1
    for line in verdict.notes:
        print(line)
    if verdict.missed:
        for cause in verdict.missed:
            print(f"failed: {cause}")
        print(f"data and logs are in {directory}")
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    print("met")
    return 0
