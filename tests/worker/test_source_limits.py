"""Sources that cost too much to parse are refused by a process with limits, while other tenants' are read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest
from magnetar.errors import PackageError, RequestRefused
from magnetar.instance.examination.source import FUNCTION, SINK, Source, SourceQuestion, read_source
from magnetar.runtime.process.examinations import AT_ONCE_MAX, PER_TENANT_MAX, _last_lines, _said
from magnetar.runtime.process.runtime import ProcessRuntime
from magnetar.worker.functions.code_check import UNDER_WAY_MAX, CodeCheck

NESTED_ELIF = "def f(x): pass\nif 0: pass\n" + "elif 0: pass\n" * 300
NESTED_SUMS = "def f(x): pass\nx = " + "1+" * 200_000 + "1\n"
DOUBLING = (
    "def f(x):\n" + "".join(" " * n + "try: pass\n" + " " * n + "finally:\n" for n in range(1, 20)) + " " * 20 + "0\n"
)
"""Compiled, each `finally` holds its body twice: these 800 bytes take eight seconds and 1.5 GB."""


def written(directory: Path, source: str) -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "m.py").write_text(source)
    return directory / "m.py"


def question(place: Path, kind: str = FUNCTION, tenant: str = "") -> SourceQuestion:
    return SourceQuestion(place, kind, "m.f" if kind == FUNCTION else "", tenant=tenant)


@pytest.fixture
async def processes() -> AsyncIterator[ProcessRuntime]:
    it = ProcessRuntime()
    yield it
    await it.close()


def test_nested_statements_are_read_without_recursion(tmp_path: Path) -> None:
    assert read_source(question(written(tmp_path, NESTED_ELIF))).class_name == "m.f"


@pytest.mark.parametrize("source", ["x = " + "(" * 5000, NESTED_SUMS, "x = " + "-" * 200_000 + "1"])
def test_a_source_that_nests_too_deeply_is_refused(tmp_path: Path, source: str) -> None:
    with pytest.raises(PackageError, match=r"^m\.py "):
        read_source(question(written(tmp_path, source)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [FUNCTION, SINK])
async def test_a_source_that_costs_too_much_is_refused_by_name(
    processes: ProcessRuntime, tmp_path: Path, kind: str
) -> None:
    place = written(tmp_path / "costly", DOUBLING)
    with pytest.raises(PackageError) as caught:
        await processes.read_source(question(place, kind))
    assert str(caught.value) in (
        "m.py takes too much memory to parse: split it, and move data into files that are not Python",
        "m.py is too expensive to parse: it takes more than 5 s of CPU time or 1024 MiB of memory; split it,"
        " and move data to non-Python files",
    )
    assert await processes.read_source(question(written(tmp_path / "next", "def f(x): pass"))) == Source("m.f")


@pytest.mark.slow
async def test_others_are_read_while_one_tenant_has_used_its_share(processes: ProcessRuntime, tmp_path: Path) -> None:
    costly = [question(written(tmp_path / str(n), f"{DOUBLING}#{n}"), tenant="greedy") for n in range(AT_ONCE_MAX + 3)]
    reads = [asyncio.create_task(processes.read_source(one)) for one in costly]
    quick = question(written(tmp_path / "quick", "def f(x): pass"), tenant="other")
    assert await processes.read_source(quick) == Source("m.f")
    assert sum(not one.done() for one in reads) >= len(reads) - PER_TENANT_MAX, "those that wait came first"
    for one in reads:
        one.cancel()
    await asyncio.gather(*reads, return_exceptions=True)


async def test_a_tenant_with_too_many_examinations_under_way_is_refused(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    asked: list[SourceQuestion] = []

    async def read(one: SourceQuestion) -> Source:
        asked.append(one)
        await go_on.wait()
        return Source(one.class_name)

    def examine(_: Any) -> Awaitable[str | None]:
        raise AssertionError

    code = CodeCheck(examine, read)
    under_way = [
        asyncio.create_task(code.read_source(question(tmp_path / str(n // 2), tenant="a")))
        for n in range(2 * UNDER_WAY_MAX)
    ]
    await asyncio.sleep(0)
    with pytest.raises(RequestRefused, match=r"^tenant a has 32 packages being examined: retry") as caught:
        await code.read_source(question(tmp_path / "one more", tenant="a"))
    assert caught.value.status == 429
    other = asyncio.create_task(code.read_source(question(tmp_path / "other", tenant="b")))
    await asyncio.sleep(0)
    go_on.set()
    assert (await other).class_name == "m.f"
    await asyncio.gather(*under_way)
    await asyncio.gather(*(code.read_source(one) for one in list(asked)))
    assert len(asked) == UNDER_WAY_MAX + 1, "each question is asked once"
    await code.close()


async def test_a_busy_machine_is_not_the_fault_of_a_package(tmp_path: Path) -> None:
    async def read(_: SourceQuestion) -> None:
        return None

    code = CodeCheck(lambda _: pytest.fail("not asked"), read)
    with pytest.raises(
        RequestRefused,
        match=r"^the package was not examined within 30 s because the worker is"
        r" busy: ",
    ) as caught:
        await code.read_source(question(tmp_path))
    assert caught.value.status == 503
    await code.close()


@pytest.mark.parametrize(
    ("said", "answer", "reading"),
    [
        (b'{"refusal": "no"}', {"refusal": "no"}, ""),
        (b'{"reading": "a.py"}\n{"reading": "b.py"}\n{"source": ["m.f", ""]}', {"source": ["m.f", ""]}, "b.py"),
        (b'{"reading": "a.py"}\n', None, "a.py"),
        (b'{"reading": 1}\n{"source": [1]}', None, ""),
        (b"", None, ""),
        (b"[" * 50_000, None, ""),
        (b'{"refusal": ' + b"[" * 900 + b"]" * 900 + b"}", None, ""),
    ],
)
def test_only_expected_answers_are_passed_on(said: bytes, answer: object, reading: str) -> None:
    assert _said(_last_lines(said)) == (answer, True, reading)


def test_of_a_long_list_of_files_only_the_last_is_kept() -> None:
    kept = b""
    for number in range(5000):
        kept = _last_lines(kept + b'{"reading": "%d.py"}\n' % number)
        assert len(kept) < 100
    assert _said(kept).reading == "4999.py"
