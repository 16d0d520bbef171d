"""Shared parts of the Spark benchmarks: whether Spark is installed, and running each in a separate process.

PySpark modifies its process, so each benchmark measures in a child process, which prints JSON on its last line. If the
child is killed, its JVM also ends, as it depends on the pipe from its parent.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

TIMEOUT_S = 900.0


def is_installed(benchmark: str) -> bool:
    """Return whether the extra is installed; if not, print a line to standard error."""
    missing = [name for name in ("pyspark", "pyarrow", "pandas") if find_spec(name) is None]
    if missing:
        print(
            f"{benchmark}: skipped, {', '.join(missing)} missing: install the extra: {sys.executable} -m pip install"
            " --constraint constraints.txt --editable '.[spark]'",
            file=sys.stderr,
        )
    return not missing


def measured(module: str, *arguments: object) -> dict[str, Any]:
    """Run a module of this package with arguments, and return its measurements.

    Raises:
        RuntimeError: it failed; its output is on standard error.
    """
    command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False, timeout=TIMEOUT_S)
    if done.returncode:
        raise RuntimeError(f"`{' '.join(command[1:])}` exited with code {done.returncode}; see its output above")
    found = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found
