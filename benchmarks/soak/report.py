"""What a soak says in the end, and its exit code."""

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
    """Lines for the reader.

    Attributes:
        notes: what was found.
        missed: what should be otherwise; empty if all is well.
    """

    notes: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)

    def compare(self, name: str, said: str, is_met: bool) -> None:
        """Note a line, as a miss unless it is met."""
        (self.notes if is_met else self.missed).append(f"{name}: {said}")


def report(run: Callable[[Settings, Path, random.Random], Verdict], seconds: float) -> int:
    """Run a soak of some time, as `conclude` does.

    Args:
        run: is given the settings, an empty directory and chance.
        seconds: of load, unless the environment says otherwise.

    Returns:
        The exit code: 0 if all was met, 1 if something was missed, 2 if the settings cannot be.
    """
    try:
        settings = settings_of(os.environ, seconds)
    except ValueError as error:
        print(f"soak: {error}", file=sys.stderr)
        return 2
    print(f"soak of {settings.seconds:g} s, seed {settings.seed}", flush=True)
    return conclude(lambda directory: run(settings, directory, random.Random(settings.seed)))


def conclude(run: Callable[[Path], Verdict]) -> int:
    """Run a soak and print its verdict; what it leaves on the disk stays only if something was missed.

    Args:
        run: is given an empty directory.

    Returns:
        The exit code: 0 if all was met, 1 if something was missed.
    """
    logging.basicConfig(level=logging.ERROR)  # lost connections are expected
    directory = Path(tempfile.mkdtemp(prefix="magnetar-soak-"))
    try:
        verdict = run(directory)
    except Exception as error:  # noqa: BLE001  whatever ends it is the cause
        print(f"missed: {str(error).splitlines()[0] or type(error).__name__}; data and logs are in {directory}")
        return 1
    for line in verdict.notes:
        print(line)
    if verdict.missed:
        for cause in verdict.missed:
            print(f"missed: {cause}")
        print(f"data and logs are in {directory}")
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    print("met")
    return 0
