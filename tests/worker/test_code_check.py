"""Packages are loaded in another process before they are stored; only what no worker could run is refused."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from magnetar.errors import PackageError
from magnetar.instance.examination.package import Question
from magnetar.runtime.process.runtime import ProcessRuntime
from magnetar.worker.functions.code_check import CodeCheck

from tests.support.eventually import eventually

pytestmark = pytest.mark.slow


@pytest.fixture
async def processes() -> AsyncIterator[ProcessRuntime]:
    it = ProcessRuntime()
    yield it
    await it.close()


@pytest.fixture
async def code(processes: ProcessRuntime) -> AsyncIterator[CodeCheck]:
    check = CodeCheck(processes.examine, processes.read_source)
    yield check
    await check.close()


def zygote(processes: ProcessRuntime) -> int:
    """The process id of what forks."""
    assert processes._zygote is not None
    return processes._zygote.channel.pid


def package(directory: Path, **files: str) -> Path:
    for name, source in files.items():
        place = directory.joinpath(*name.split("__in__")).with_suffix(".py")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(source)
    return directory


async def refusal(code: CodeCheck, place: Path, class_name: str, *, is_called: bool = True) -> str:
    try:
        await code.check(Question(place, class_name, is_called))
    except PackageError as exc:
        return str(exc)
    return ""


async def test_what_no_worker_could_run_is_refused(code: CodeCheck, tmp_path: Path) -> None:
    takes = "must accept the message, or the message and a context"
    cases = {
        "def f(): pass": "className m.f: f() " + takes,
        "def f(a, b, c): pass": "className m.f: f(a, b, c) " + takes,
        "def f(a, *, key): pass": "className m.f: f(a, *, key) " + takes,
        "class f:\n def process(self): pass": "className m.f: f.process() " + takes,
        "class f:\n def __init__(self, x): pass\n def process(self, i, c): pass":
            "className m.f: class f is created without arguments, but __init__ requires some: add default values",
        "from pulsar import Function\nclass f(Function): pass":
            "className m.f: class f is abstract: define process",
        "import shop.price\ndef f(x): pass": "the package has no module shop.price, which its code imports",
        "from shop import prize\ndef f(x): pass":
            "an import in the package fails: cannot import name 'prize' from 'shop'",
        "from . import shop\ndef f(x): pass": "an import in the package fails: attempted relative import with no known"
            " parent package; import the module by its full name",
        "import broken\ndef f(x): pass": "broken.py has a syntax error on line 1: '(' was never closed",
    }  # fmt: skip
    for number, (source, reason) in enumerate(cases.items()):
        place = package(tmp_path / str(number), m=source, shop__in____init__="", broken="x = (")
        found = await refusal(code, place, "m.f")
        assert found.split(" (unknown")[0] == reason, source


async def test_what_could_run_somewhere_is_taken(code: CodeCheck, tmp_path: Path) -> None:
    sources = (
        "def f(x): pass",
        "def f(x, context=None): pass",
        "def f(*all): pass",
        "async def f(x): pass",
        "def f(x):\n    yield x",
        "f = print",
        "class f:\n @staticmethod\n def process(x, c): pass",
        "class f:\n @classmethod\n def process(cls, x): pass",
        "class f:\n def __init__(self): self.process = print",
        "from pulsar import Function\nclass f(Function):\n def process(self, i, c): pass",
        "import not_installed_anywhere\ndef f(): pass",
        "import os\nos._exit(3)",
        "raise SystemExit",
        "all = b'x' * 5 * 1024**3\ndef f(): pass",
        "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)",
        "import sys\nsys.stdout.close()\nsys.stderr.close()\ndef f(x): pass",
        "try:\n    import shop.price\nexcept ImportError: pass\ndef f(x): pass",
        "import json, shop\nassert shop.here\ndef f(x): pass",
    )
    for number, source in enumerate(sources):
        place = package(tmp_path / str(number), m=source, shop__in____init__="here = 1")
        assert await refusal(code, place, "m.f") == "", source
    assert await refusal(code, package(tmp_path / "s", m="class S: pass"), "m.S", is_called=False) == ""


async def test_one_that_takes_too_long_is_taken_and_ended_with_what_it_started(
    code: CodeCheck, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "pid"
    source = f"import subprocess\np = subprocess.Popen(['sleep', '600'])\nopen({str(mark)!r}, 'w').write(str(p.pid))\n"
    place = package(tmp_path / "p", m=source + "while True: pass")
    quick = package(tmp_path / "q", m="def f(): pass")
    slow = asyncio.create_task(refusal(code, place, "m.f"))
    assert await refusal(code, quick, "m.f") != "", "the slow one holds nobody up"
    assert await slow == ""
    started = int(mark.read_text())

    async def is_gone() -> bool:
        return not psutil.pid_exists(started) or psutil.Process(started).status() == psutil.STATUS_ZOMBIE

    await eventually(is_gone, "end of what it started")


async def test_one_content_is_examined_once_and_a_dead_process_is_replaced(
    code: CodeCheck, processes: ProcessRuntime, tmp_path: Path
) -> None:
    count = tmp_path / "count"
    place = package(tmp_path / "p", m=f"open({str(count)!r}, 'a').write('x')\ndef f(x): pass")
    await asyncio.gather(*(refusal(code, place, "m.f") for _ in range(20)))
    assert count.read_text() == "x"
    os.kill(zygote(processes), 9)
    other = package(tmp_path / "o", m="def f(): pass")

    async def answers() -> bool:
        return await refusal(code, other, "m.f") != ""

    await eventually(answers, "answer of the next process")


def left_behind(mark: Path) -> str:
    """A module that starts a process which leaves it."""
    return (
        "import os, subprocess\np = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"with open({str(mark)!r} + '-', 'w') as file:\n    file.write(f'{{p.pid}} {{os.getpid()}}')\n"
        f"os.rename({str(mark)!r} + '-', {str(mark)!r})\n"
    )


async def gone(mark: Path) -> None:
    """Wait until no process runs that a module has told of."""

    pids = told_by(mark)

    async def is_gone() -> bool:
        living = (psutil.Process(pid) for pid in pids if psutil.pid_exists(pid))
        return all(process.status() == psutil.STATUS_ZOMBIE for process in living)

    await eventually(is_gone, "end of what it left", timeout_s=5)


def told_by(mark: Path) -> list[int]:
    return [int(word) for word in mark.read_text().split()] if mark.is_file() else []


async def told(mark: Path) -> None:
    async def is_there() -> bool:
        return bool(told_by(mark))

    await eventually(is_there, "word of the module")


async def test_what_leaves_the_session_of_its_module_ends_with_it(code: CodeCheck, tmp_path: Path) -> None:
    mark = tmp_path / "pids"
    place = package(tmp_path / "p", m=left_behind(mark) + "def f(x): pass")
    assert await refusal(code, place, "m.f") == ""
    await gone(mark)


@pytest.mark.parametrize("how", ["closed", "killed"])
async def test_nothing_is_examined_on_when_the_worker_has_gone(
    code: CodeCheck, processes: ProcessRuntime, tmp_path: Path, how: str
) -> None:
    mark = tmp_path / "pids"
    source = left_behind(mark) if how == "closed" else f"import os\nopen({str(mark)!r}, 'w').write(str(os.getpid()))\n"
    place = package(tmp_path / "p", m=source + "while True: pass")
    asking = asyncio.create_task(refusal(code, place, "m.f"))
    await told(mark)
    if how == "closed":
        await processes.close()
    else:
        os.kill(zygote(processes), 9)
    await gone(mark)
    await asyncio.gather(asking, return_exceptions=True)


@pytest.mark.parametrize("said", [b"[]", b"{}", b"1", b'"x"', b"[" * 50_000, b"\xff"])
async def test_a_module_that_writes_into_every_file_is_examined_alone(
    code: CodeCheck, processes: ProcessRuntime, tmp_path: Path, said: bytes
) -> None:
    assert await refusal(code, package(tmp_path / "a", m="def f(x): pass"), "m.f") == ""
    before = zygote(processes)
    source = (
        f"import os\nfor n in range(3, 100):\n    try: os.write(n, {said!r})\n    except OSError: pass\nos._exit(0)"
    )
    assert await refusal(code, package(tmp_path / "b", m=source), "m.f") == ""
    assert await refusal(code, package(tmp_path / "c", m="def f(): pass"), "m.f") != ""
    assert zygote(processes) == before
