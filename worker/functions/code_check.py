"""Examines the source code of packages, and loads their code in other processes, before packages are stored.

Concurrent identical questions are answered once, and each tenant may have at most `UNDER_WAY_MAX` pending questions.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from ...errors import PackageError, RequestRefused
from ...instance.examination.package import Question
from ...instance.examination.source import Source, SourceQuestion
from ...runtime.process.runtime import SOURCE_TIMEOUT_S, ProcessRuntime
from ...tasks import Room, Shares, TaskSet

REMEMBERED_MAX = 10_000
UNDER_WAY_MAX = 32
"""Maximum number of running and queued examinations per tenant."""
_ALL_UNDER_WAY_MAX = 1024
Q = TypeVar("Q", Question, SourceQuestion)
A = TypeVar("A")
ReadSource = Callable[[SourceQuestion], Awaitable[Source | None]]


class _Answers(Generic[Q, A]):
    """Answers to questions of one kind."""

    def __init__(self, ask: Callable[[Q], Awaitable[A | None]]) -> None:
        self._ask_other: Callable[[Q], Awaitable[A | None]] = ask
        self._known: OrderedDict[Q, A] = OrderedDict()
        self._under_way: dict[Q, asyncio.Task[A | None]] = {}
        self._shares = Shares(_ALL_UNDER_WAY_MAX, UNDER_WAY_MAX)
        self.tasks = TaskSet("package examination")

    async def get(self, question: Q) -> A | None:
        """Return the answer, or None if it cannot be determined now. Cancellation: safe.

        Raises:
            RequestRefused: 429, the tenant has too many pending questions; 503, all tenants together have too many.
        """
        if (known := self._known.get(question)) is not None:
            return known
        task = self._under_way.get(question)
        if task is None:
            self._take_place(question.tenant)
            task = self._under_way[question] = self.tasks.start(self._ask(question), "question")
        return await asyncio.shield(task)

    def _take_place(self, tenant: str) -> None:
        room = self._shares.take(tenant)
        if room is Room.SHARE_USED:
            raise RequestRefused(
                429, f"tenant {tenant} has {UNDER_WAY_MAX} packages being examined: retry when some have finished"
            )
        if room is Room.POOL_USED:
            raise RequestRefused(503, f"{_ALL_UNDER_WAY_MAX} packages are being examined: retry shortly")

    async def _ask(self, question: Q) -> A | None:
        try:
            answer = await self._ask_other(question)
        finally:
            del self._under_way[question]
            self._shares.give_back(question.tenant)
        if answer is not None:
            self._known[question] = answer
            if len(self._known) > REMEMBERED_MAX:
                self._known.popitem(last=False)
        return answer


class CodeCheck:
    """Examines packages. Bound to one event loop."""

    def __init__(self, examine: Callable[[Question], Awaitable[str | None]], read_source: ReadSource) -> None:
        """Create a check.

        Args:
            examine: answers questions about code; see `runtime.interface.Examines`.
            read_source: answers questions about source code.
        """
        self._examine = examine
        self._code: _Answers[Question, str] = _Answers(lambda question: self._examine(question))
        self._sources: _Answers[SourceQuestion, Source | PackageError] = _Answers(_caught(read_source))

    async def check(self, question: Question) -> None:
        """Raise if a package cannot work. Cancellation: safe.

        Raises:
            PackageError: the package cannot work on any worker; the message contains the reason.
            RequestRefused: 429 or 503, too many packages are being examined.
        """
        if refusal := await self._code.get(question):
            raise PackageError(refusal)

    async def read_source(self, question: SourceQuestion) -> Source:
        """Return the properties of a package's source code. Cancellation: safe.

        Raises:
            PackageError: the source code is incomplete, invalid or too costly to examine.
            RequestRefused: 429 or 503, too many packages are being examined, or the machine is too busy.
        """
        answer = await self._sources.get(question)
        if answer is None:
            raise RequestRefused(
                503,
                f"the package was not examined within {SOURCE_TIMEOUT_S:g} s because the worker is busy: retry shortly",
            )
        if isinstance(answer, PackageError):
            raise PackageError(str(answer))
        return answer

    async def close(self) -> None:
        """Cancel the running examinations."""
        await self._code.tasks.close()
        await self._sources.tasks.close()


def _caught(read_source: ReadSource) -> Callable[[SourceQuestion], Awaitable[Source | PackageError | None]]:
    """Wrap `read_source` to return a PackageError instead of raising it, so that it can be cached."""

    async def read(question: SourceQuestion) -> Source | PackageError | None:
        try:
            return await read_source(question)
        except PackageError as error:
            return PackageError(str(error))  # without the traceback

    return read


async def check_once(question: Question) -> None:
    """Check one package without a `CodeCheck`; raises the same errors as `CodeCheck.check`."""
    processes = ProcessRuntime()
    code = CodeCheck(processes.examine, processes.read_source)
    try:
        await code.check(question)
    finally:
        await code.close()
        await processes.close()
