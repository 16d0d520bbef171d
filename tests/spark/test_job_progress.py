"""What a session shows of its jobs: on a terminal, in a notebook, in a pipe, and nowhere."""

from __future__ import annotations

import io
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from magnetar.errors import InvalidConfig
from magnetar.spark.job_progress import DELAY_S, LINE_PERIOD_S, JobProgress, PlainLines, TerminalLine, place_for
from magnetar.spark.session_config import SessionConfig

from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from magnetar.spark.session import Session

BEGIN_S = 100.0
NO_BAR = "\r\x1b[K"


class Stages:
    """A tracker of stages that a test sets: number -> tasks that are done, all tasks, running, failed."""

    def __init__(self) -> None:
        self.running: dict[int, tuple[int, int, int, int] | None] = {}

    def getActiveStageIds(self) -> list[int]:
        return list(self.running)

    def getStageInfo(self, stage: int) -> Any:
        if (counts := self.running[stage]) is None:
            return None
        names = ("numCompletedTasks", "numTasks", "numActiveTasks", "numFailedTasks")
        return SimpleNamespace(**dict(zip(names, counts, strict=True)))


class Watched:
    """The progress of `Stages` under a clock of its own, at a place."""

    def __init__(self, place: Any) -> None:
        self.stages = Stages()
        self.now_s = BEGIN_S
        self._progress = JobProgress(self.stages, place, lambda: self.now_s)

    def at(self, after_s: float, **running: tuple[int, int, int, int] | None) -> None:
        """Look so long after the beginning, when stages ``s<number>`` run."""
        self.now_s = BEGIN_S + after_s
        self.stages.running = {int(name[1:]): counts for name, counts in running.items()}
        self._progress.look()


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True

    def take(self) -> str:
        """What was written since the last call."""
        text = self.getvalue()
        self.seek(0)
        self.truncate()
        return text


def test_a_terminal_has_one_line_that_is_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    screen = Screen()
    watched = Watched(place_for("auto", screen))
    watched.at(0, s3=(0, 4, 2, 0))
    watched.at(DELAY_S - 0.1, s3=(1, 4, 2, 0))
    assert screen.take() == ""
    watched.at(DELAY_S, s3=(1, 4, 2, 0))
    assert screen.take() == f"{NO_BAR}[======>                 ] 1/4 tasks, 2 running, stage 3, 0 s\r"
    watched.at(12, s3=(4, 4, 0, 0), s5=(0, 1996, 2, 1), s6=None)
    assert screen.take() == (
        f"{NO_BAR}[>                       ] 4/2,000 tasks, 2 running, 1 failed, stages 3, 5, 12 s\r"
    )
    watched.at(12.2)
    assert screen.take() == ""
    watched.at(12.4)
    assert screen.take() == NO_BAR
    watched.at(20)
    assert screen.take() == ""


def test_a_moment_between_two_stages_does_not_begin_anew() -> None:
    screen = Screen()
    watched = Watched(TerminalLine(screen))
    watched.at(0, s0=(0, 2, 2, 0))
    watched.at(5)
    watched.at(7, s1=(2, 2, 0, 0))
    assert screen.take() == f"{NO_BAR}[{'=' * 24}] 2/2 tasks, 0 running, stage 1, 7 s\r"


def test_a_line_is_no_longer_than_the_terminal_is_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    screen = Screen()
    watched = Watched(TerminalLine(screen))
    watched.at(0, s0=(0, 2, 2, 0))
    watched.at(1, s0=(0, 2, 2, 0))
    assert screen.take() == f"{NO_BAR}[>{' ' * 23}] 0/\r"


def test_a_pipe_has_lines_only_where_they_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    assert place_for("auto", pipe) is None
    assert place_for(False, Screen()) is None
    monkeypatch.setenv("TERM", "dumb")
    assert place_for("auto", Screen()) is None
    assert isinstance(place_for(True, pipe), PlainLines)
    times = iter([0.0, 0.0, LINE_PERIOD_S - 1, LINE_PERIOD_S, LINE_PERIOD_S + 1, LINE_PERIOD_S + 2])
    lines = PlainLines(pipe, lambda: next(times))
    for text in ("first", "too early", "second"):
        lines.show(text)
    lines.end("last")
    lines.show("of the next job")
    assert pipe.getvalue().splitlines() == ["first", "second", "last", "of the next job"]


class Kernel:
    """A notebook's: what its cells show, each as the list of texts that followed each other in one place."""

    def __init__(self) -> None:
        self.shown: list[list[str]] = []

    def display(self, data: dict[str, str], *, raw: bool, display_id: bool) -> SimpleNamespace:
        assert raw
        assert display_id
        texts = [data["text/plain"]]
        self.shown.append(texts)
        return SimpleNamespace(update=lambda data, *, raw: texts.append(data["text/plain"]))


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    it = Kernel()
    ipython, display = ModuleType("IPython"), ModuleType("IPython.display")
    vars(ipython)["get_ipython"] = lambda: SimpleNamespace(kernel=it)
    vars(display)["display"] = it.display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return it


def test_a_notebook_has_a_line_below_each_cell(kernel: Kernel) -> None:
    watched = Watched(place_for("auto", io.StringIO()))
    for first in (0, 10):
        watched.at(first, s0=(0, 2, 2, 0))
        watched.at(first + 1, s0=(0, 2, 2, 0))
        watched.at(first + 2, s0=(1, 2, 1, 0))
        watched.at(first + 3)
        watched.at(first + 4)
    cell = [
        "[>                       ] 0/2 tasks, 2 running, stage 0, 1 s",
        "[============>           ] 1/2 tasks, 1 running, stage 0, 2 s",
        "all tasks finished after 4 s",
    ]
    assert kernel.shown == [cell, cell]


def test_what_is_no_choice_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="invalid progress 'yes': expected 'auto', True or False"):
        SessionConfig(directory=Path("/x"), progress="yes")  # type: ignore[arg-type]
    own = {"spark.ui.showConsoleProgress": "true"}
    assert SessionConfig(directory=Path("/x"), settings=own).has_own_bar()
    with pytest.raises(InvalidConfig, match=r"progress=True and spark\.ui\.showConsoleProgress=true would both draw"):
        SessionConfig(directory=Path("/x"), settings=own, progress=True)


@pytest.mark.spark
def test_a_job_is_shown_while_it_runs(
    session: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, said = tmp_path / "gate", []

    def wait(rows: Iterator[int]) -> None:
        import time

        there = list(rows)
        while there and not gate.exists():
            time.sleep(0.01)

    def lines() -> list[str]:
        said.extend(capsys.readouterr().err.splitlines())
        return said

    session.show_progress(True)
    progress = session._progress
    assert progress is not None
    job = threading.Thread(target=session.context.parallelize([0, 1], 2).foreachPartition, args=(wait,))
    job.start()
    try:
        first = r"\[=* *>? *\] [01]/2 tasks, [12] running, stage \d+, \d+ s"
        wait_for(lambda: any(re.fullmatch(first, line) for line in lines()), "the line of a running job", 60)
    finally:
        gate.touch()
        job.join()
        wait_for(lambda: any(line.startswith("all tasks finished") for line in lines()), "the last line", 60)
        progress.close()
        monkeypatch.setattr(session, "_progress", None)
    assert not progress._thread.is_alive()
