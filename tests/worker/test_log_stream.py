"""Logs as they are streamed: of several instances at once, and from another worker that goes away and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from magnetar.worker.functions import instances as module
from magnetar.worker.functions.instances import Instances
from magnetar.worker.functions.log_stream import merged
from magnetar.worker.functions.service import FunctionName
from magnetar.worker.rest import logs

NAME = FunctionName("t", "n", "f")


async def endless(text: bytes) -> AsyncIterator[bytes]:
    while True:
        yield text
        await asyncio.sleep(0)


async def few(*texts: bytes) -> AsyncIterator[bytes]:
    for text in texts:
        yield text
        await asyncio.sleep(0)


async def test_several_logs_end_when_all_have_ended() -> None:
    async with asyncio.timeout(5):
        found = [piece async for piece in merged([few(b"a", b"b"), few(), few(b"c")])]
    assert sorted(found) == [b"a", b"b", b"c"]


async def test_a_client_that_leaves_while_much_is_waiting_for_it_leaves_nothing_behind() -> None:
    before = asyncio.all_tasks()
    pieces: Any = merged([endless(b"a"), endless(b"b")])
    await anext(pieces)
    for _ in range(20):  # until no more has room
        await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await pieces.aclose()
    assert asyncio.all_tasks() == before


class Asking:
    """A request whose rights end after so many looks."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    async def ended(self, _now_s: float) -> str:
        self.looks -= 1
        return "" if self.looks else "gone"


async def test_log_that_is_silent_or_busy_ends_with_the_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "CHECK_S", 0.01)

    async def silent() -> AsyncGenerator[bytes, None]:
        yield b"one\n"
        await asyncio.Event().wait()

    before = asyncio.all_tasks()
    async with asyncio.timeout(5):
        asking: Any = Asking(2)
        assert [piece async for piece in logs.while_allowed(silent(), asking)] == [
            b"one\n",
            b"the log ends here: gone\n",
        ]
        asking = Asking(3)
        busy = [piece async for piece in logs.while_allowed(merged([endless(b"a")]), asking)]
        assert busy[-1] == b"the log ends here: gone\n"
        asking = Asking(1000)
        assert [piece async for piece in logs.while_allowed(merged([few(b"a", b"b")]), asking)] == [b"a", b"b"]
        left = logs.while_allowed(silent(), asking)
        await anext(left)
        await left.aclose()
    assert asyncio.all_tasks() == before


class Other:
    """Another worker, which has the instance, and this one's view of it."""

    def __init__(self) -> None:
        self.answers: list[httpx.Response | None] = []
        self.asked: list[str] = []
        self.owner = "other"
        member = SimpleNamespace(url="http://other")
        roster = SimpleNamespace(member=lambda _: member)

        async def read_roster() -> Any:
            return roster

        membership: Any = SimpleNamespace(
            me=SimpleNamespace(worker_id="me"), roster=read_roster, url_of=lambda member: member.url
        )
        scheduler: Any = SimpleNamespace(
            of_function=lambda _: [(SimpleNamespace(instance_id=0), SimpleNamespace(workerId=self.owner))]
        )
        http = httpx.AsyncClient(transport=httpx.MockTransport(self._answer))
        self.instances = Instances(None, scheduler, membership, http, read_roster)  # type: ignore[arg-type]

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(str(request.url))
        answer = self.answers.pop(0) if self.answers else None
        if answer is None:
            raise httpx.ConnectError("refused")
        return answer

    def log(self, *, is_following: bool) -> Any:
        return self.instances.read_log(NAME, 0, 10, b"", is_following=is_following)


async def test_a_log_is_followed_again_when_its_worker_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FOLLOW_AGAIN_S", 0.01)
    other = Other()
    other.answers = [httpx.Response(200, content=b"before\n"), None, None, httpx.Response(200, content=b"after\n")]
    log = other.log(is_following=True)
    async with asyncio.timeout(5):
        found = [await anext(log) for _ in range(3)]
        await log.aclose()
    assert found == [b"before\n", b"worker other did not answer: refused\n", b"after\n"], "said once"


async def test_a_refusal_of_the_other_worker_is_no_line_of_the_log() -> None:
    other = Other()
    other.answers = [httpx.Response(404, json={"reason": "Function f doesn't exist"})]
    found = [line async for line in other.log(is_following=False)]
    assert found == [b"worker other rejected the request: Function f doesn't exist\n"]


async def test_a_line_of_another_worker_stays_one_whatever_is_in_it() -> None:
    other = Other()
    text = "page\x0cbreak, unit\x1f, next\x85line, \u2028separator\rreturn\n"
    other.answers = [httpx.Response(200, content=text.encode())]
    found = [line async for line in other.log(is_following=False)]
    assert found == [text.encode()]
