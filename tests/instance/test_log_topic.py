"""The log topic of an instance: what does not fit is cut, and what the topic does not take is named in the file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from magnetar.client.client import AsyncClient
from magnetar.client.config import ConsumerConfig
from magnetar.errors import MessageTooLarge
from magnetar.instance.logs import topic as topic_module
from magnetar.instance.logs.file import InstanceLog
from magnetar.instance.logs.topic import MESSAGE_CHARACTERS_MAX, WAITING_CHARACTERS_MAX, LogTopic
from magnetar.runtime.thread.runtime import ThreadRuntime

from tests.support.eventually import eventually
from tests.support.instances import MakeSpec
from tests.support.servers import Server

EARLIEST = ConsumerConfig(initial_position="Earliest")


async def test_line_of_six_megabytes_arrives_cut_and_says_so(
    server: Server, client: AsyncClient, make_spec: MakeSpec, topic: str
) -> None:
    runtime = ThreadRuntime(server.service_url)
    spec = make_spec("def process(text): print('x' * 6_000_000)", logTopic=f"{topic}-log")
    lines = await client.subscribe(f"{topic}-log", "test", EARLIEST)
    await runtime.start(spec)
    await (await client.create_producer(f"{topic}-in")).send(b"x")
    async with asyncio.timeout(60):
        while True:
            text = (await lines.receive(60)).data.decode()
            if text.startswith("xxx"):
                break
    assert len(text) < MESSAGE_CHARACTERS_MAX + 200
    assert "of 6000000 characters omitted" in text
    await runtime.close()


class FakeClient:
    """Opens a producer that waits for `room`, and takes what is short enough."""

    def __init__(self) -> None:
        self.room = asyncio.Event()
        self.sent: list[str] = []
        self.is_closed = False

    async def create_producer(self, *_: object) -> Any:
        return self

    async def ready(self) -> None:
        await self.room.wait()

    def send_nowait(self, payload: bytes, **_: object) -> asyncio.Future[Any]:
        if b"too long at once" in payload:
            raise MessageTooLarge("at once")
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if b"too long" in payload:
            answer.set_exception(MessageTooLarge("message of 9 bytes exceeds 8"))
        else:
            self.sent.append(payload.decode())
            answer.set_result(None)
        return answer

    async def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def instance_log(tmp_path: Path) -> InstanceLog:
    return InstanceLog(tmp_path / "f.log")


@pytest.mark.parametrize("text", ["too long", "too long at once"])
async def test_message_that_is_refused_is_named_in_the_file(
    instance_log: InstanceLog, make_spec: MakeSpec, text: str
) -> None:
    log_topic, client = LogTopic(make_spec(logTopic="logs"), instance_log), FakeClient()
    client.room.set()
    await log_topic.open(client, None)  # type: ignore[arg-type]
    instance_log.write("INFO", text)
    instance_log.write("INFO", "short")

    async def is_named() -> bool:
        return "rejected line 1 for logs: " in instance_log.path.read_text() and client.sent == ["short"]

    await eventually(is_named, "name of what is missing")
    await log_topic.close()


async def test_producer_is_closed_although_what_waits_cannot_be_sent(
    instance_log: InstanceLog, make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_module, "_CLOSE_S", 0.05)
    log_topic, client = LogTopic(make_spec(logTopic="logs"), instance_log), FakeClient()
    await log_topic.open(client, None)  # type: ignore[arg-type]
    instance_log.write("INFO", "never sent")
    await log_topic.close()
    assert (client.sent, client.is_closed) == ([], True)


async def test_what_waits_is_bounded_and_what_is_dropped_is_counted(
    instance_log: InstanceLog, make_spec: MakeSpec
) -> None:
    log_topic, client = LogTopic(make_spec(logTopic="logs"), instance_log), FakeClient()
    await log_topic.open(client, None)  # type: ignore[arg-type]
    count = 2 * WAITING_CHARACTERS_MAX // MESSAGE_CHARACTERS_MAX
    for _ in range(count):
        instance_log.write("INFO", "\n".join(["x" * 1000] * (MESSAGE_CHARACTERS_MAX // 1000)))
    client.room.set()

    async def is_told() -> bool:
        return bool(client.sent) and "lines, too fast for this topic" in client.sent[-1]

    await eventually(is_told, "count of what is missing")
    assert sum(map(len, client.sent)) < WAITING_CHARACTERS_MAX + MESSAGE_CHARACTERS_MAX
    instance_log.write("INFO", "again")
    await eventually(lambda: _is(client.sent[-1] == "again"), "next line")
    await log_topic.close()


async def _is(value: bool) -> bool:
    return value
