"""A run that is not wanted any more: its last task ends within a second, whatever the function does."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tests.spark.functions import Lab, Running
from tests.support.calm import Calm
from tests.support.servers import survivors
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
START_S = 150.0
END_S = 60.0
TASKS = 6

HANG = """
import os, pathlib, time
HERE = pathlib.Path({directory!r})

def hang():
    (HERE / f"{{os.getpid()}}.pid").touch()
    {what}
"""
MESSAGES = (
    HANG
    + """
def process(value):
    hang()
"""
)
FRAME = (
    HANG
    + """
def process(df):
    def through(batches):
        hang()
        yield from batches
    return df.select("value").mapInArrow(through, "value BINARY")
"""
)
LOOP = "while True: pass"
SLEEP = "time.sleep(600)"


def processes(directory: Path) -> list[psutil.Process]:
    found = []
    for file in directory.glob("*.pid"):
        try:
            found.append(psutil.Process(int(file.stem)))
        except psutil.NoSuchProcess:
            continue
    return found


@pytest.mark.parametrize("code", [MESSAGES, FRAME], ids=["messages", "frame"])
@pytest.mark.parametrize("what", [LOOP, SLEEP], ids=["loop", "sleep"])
def test_tasks_that_hang_end_within_a_second(lab: Lab, tmp_path: Path, code: str, what: str) -> None:
    function = lab.function(code.format(directory=str(tmp_path), what=what), minimum=TASKS)
    lab.fill([[b"%d" % number] for number in range(60)])
    with Running(lab, function) as running:
        wait_for(lambda: len(processes(tmp_path)) == 2, "two tasks", START_S)
        hanging = processes(tmp_path)
        watch = Calm()
        function.cancel()
        assert survivors(hanging, END_S) == []
        assert watch.calm_s < 1, watch
        end = running.end(END_S)
    assert (end.stage, end.error) == ("cancelled", "")
    # Spark tells the writer in a Python process, which it may have to start first.
    assert watch.calm_s < 3, watch
    assert len(list(tmp_path.glob("*.pid"))) == 2  # none began afterwards
    # The session goes on, and so does the plan.
    again = lab.function("def process(value):\n    return 'through'\n")
    end = lab.run(again, "next")
    assert (end.stage, end.rows) == ("done", 60), end.error
