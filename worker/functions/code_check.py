"""Examines packages in another process before they are stored; each content once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from ...errors import PackageError
from ...instance.examination.package import Question
from ...runtime.process.runtime import ProcessRuntime
from ...tasks import TaskSet

REMEMBERED_MAX = 10_000


class CodeCheck:
    """Has packages examined; bound to one event loop."""

    def __init__(self, examine: Callable[[Question], Awaitable[str | None]]) -> None:
        """Prepare.

        Args:
            examine: answers a question; see `runtime.interface.Examines`.
        """
        self._examine = examine
        self._known: OrderedDict[Question, str] = OrderedDict()
        self._under_way: dict[Question, asyncio.Task[str]] = {}
        self._tasks = TaskSet("check of packages")

    async def check(self, question: Question) -> None:
        """Return if nothing is known against a package. Cancellation: safe.

        Raises:
            PackageError: it cannot work on any worker; says why.
        """
        refusal = self._known.get(question)
        if refusal is None:
            task = self._under_way.get(question)
            if task is None:
                task = self._under_way[question] = self._tasks.start(self._ask(question), "question")
            refusal = await asyncio.shield(task)
        if refusal:
            raise PackageError(refusal)

    async def _ask(self, question: Question) -> str:
        try:
            answer = await self._examine(question)
        finally:
            del self._under_way[question]
        if answer is not None:
            self._known[question] = answer
            if len(self._known) > REMEMBERED_MAX:
                self._known.popitem(last=False)
        return answer or ""

    async def close(self) -> None:
        """Give up what is being examined."""
        await self._tasks.close()


async def check_once(question: Question) -> None:
    """Return if nothing is known against a package, which is examined for this alone; raises as `CodeCheck.check`."""
    processes = ProcessRuntime()
    code = CodeCheck(processes.examine)
    try:
        await code.check(question)
    finally:
        await code.close()
        await processes.close()
