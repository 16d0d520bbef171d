"""Examines packages in another process before they are stored; each content once (see `code_host`)."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import PackageError
from ...runtime.process.channel import ProcessChannel, execute
from ...tasks import TaskSet, settle, within
from .code_host import TIME_LIMIT_S

ANSWER_TIMEOUT_S = TIME_LIMIT_S + 2.0
"""How long a request waits for what is known about its package; then it is taken as it is."""
END_S = 2.0
"""How long the process may take to end what it examines when it is not wanted any more."""
REMEMBERED_MAX = 10_000

_HOST = "magnetar.worker.functions.code_host"
_log = logging.getLogger(__name__)


class Question(NamedTuple):
    """What is asked about a package; the same question has the same answer.

    Attributes:
        package: a .py file or the directory of its modules; its path has the hash of the content.
        class_name: what is used of it.
        is_called: whether that is called with messages.
        settings: what a function's config says of these, as `value_settings` gives it; empty for others.
    """

    package: Path
    class_name: str
    is_called: bool
    settings: bytes = b""


class CodeCheck:
    """Has packages examined; bound to one event loop."""

    def __init__(self) -> None:
        """Prepare; the process starts with the first package."""
        self._channel: ProcessChannel | None = None
        self._starting = asyncio.Lock()
        self._waiting: dict[int, asyncio.Future[str | None]] = {}
        self._known: OrderedDict[Question, str] = OrderedDict()
        self._under_way: dict[Question, asyncio.Task[str]] = {}
        self._number = 0
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
            answer = await self._answer(question)
        finally:
            del self._under_way[question]
        if answer is not None:
            self._known[question] = answer
            if len(self._known) > REMEMBERED_MAX:
                self._known.popitem(last=False)
        return answer or ""

    async def _answer(self, question: Question) -> str | None:
        """Return the refusal, empty for none; None if nothing could be known."""
        self._number += 1
        number = self._number
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                channel = await self._host()
                channel.tell(
                    {
                        "id": number, "package": str(question.package), "className": question.class_name,
                        "isCalled": question.is_called,
                        "settings": base64.b64encode(question.settings).decode(),
                    }
                )  # fmt: skip
                found: str | None = await future
                return found
        except (TimeoutError, OSError) as exc:
            _log.info("%s was not examined: %s", question.class_name, exc or "it took too long")
            return None
        finally:
            self._waiting.pop(number, None)

    async def _host(self) -> ProcessChannel:
        async with self._starting:
            if self._channel is None or not self._channel.is_open:
                channel = await execute(lambda number: [sys.executable, "-P", "-m", _HOST, str(number)])
                self._channel = channel
                self._tasks.start(self._listen(channel), "answers")
            return self._channel

    async def _listen(self, channel: ProcessChannel) -> None:
        await channel.listen(self._take)
        await _end(channel)
        if self._channel is channel:
            self._channel = None
            for future in self._waiting.values():
                settle(future, None)

    def _take(self, body: bytes) -> None:
        answer: dict[str, Any] = json.loads(body)
        future = self._waiting.get(answer["id"])
        if future is not None:
            settle(future, answer["refusal"] if answer["isKnown"] else None)

    async def close(self) -> None:
        """End the process."""
        if self._channel is not None:
            self._channel.close()
            await _end(self._channel)
        await self._tasks.close()


async def _end(channel: ProcessChannel) -> None:
    """Wait for the end of a process whose connection has ended: it ends what it examines first."""
    if not await within(END_S, channel.wait()):
        channel.kill()
        await channel.wait()


async def check_once(question: Question) -> None:
    """Return if nothing is known against a package, which is examined for this alone; raises as `CodeCheck.check`."""
    code = CodeCheck()
    try:
        await code.check(question)
    finally:
        await code.close()
