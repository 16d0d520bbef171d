"""Spark's Python workers: forked from one process that has imported what they need, from the installed package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from magnetar.spark.session import Session

pytestmark = pytest.mark.spark


def test_what_is_forked_has_one_thread_and_nothing_that_tasks_of_functions_do_not_need() -> None:
    program = (
        "import os, sys, pyspark_magnetar.daemon\n"
        "names = [name for name in ('pandas', 'pyarrow', 'magnetar.spark.jobs.range_task') if name in sys.modules]\n"
        "print(len(os.listdir('/proc/self/task')), *names)"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # as Spark sets it; PySpark before 4.2 imports NumPy
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == ["1", "magnetar.spark.jobs.range_task"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_tasks_find_modules_imported_from_the_installed_package(session: Session) -> None:
    def look(_: int) -> tuple[str, bool, int]:
        import pyspark

        return pyspark.__file__, "magnetar.spark.jobs.range_task" in sys.modules, os.getppid()

    found = session.context.parallelize(range(4), 4).map(look).collect()
    import pyspark

    assert {(file, is_there) for file, is_there, _ in found} == {(pyspark.__file__, True)}
    (parent,) = {parent for _, _, parent in found}
    assert "pyspark_magnetar.daemon" in Path(f"/proc/{parent}/cmdline").read_text()
