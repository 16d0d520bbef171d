"""The worker's side of a zygote: every instance is told its end, whatever an event or the zygote is like."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from typing import Any, cast

import psutil
import pytest
from magnetar.runtime.process.channel import ProcessChannel, encode
from magnetar.runtime.process.forked import how_it_ended
from magnetar.runtime.process.liveness import BUSY_FACTOR, CHECKS_MAX, Liveness
from magnetar.runtime.process.runtime import ProcessInstance, ProcessRuntime, ZygoteClient

from tests.support.eventually import until
from tests.support.instances import MakeSpec

IDLE = "def process(text): pass"


@pytest.fixture
async def runtime() -> AsyncIterator[ProcessRuntime]:
    runtime = ProcessRuntime()
    yield runtime
    await runtime.close()


async def test_instance_whose_end_cannot_be_explained_ends_and_no_other(
    runtime: ProcessRuntime, make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await runtime.start(make_spec(IDLE))
    second = await runtime.start(make_spec(IDLE, instance_id=1))

    def fail(*_: object) -> str:
        raise ValueError("no such thing")

    monkeypatch.setattr(first, "reason_of", fail)
    os.kill(first.process_id, 40)
    async with asyncio.timeout(60):
        assert await first.wait() == "the instance's process was terminated by signal 40"
    os.kill(second.process_id, signal.SIGKILL)
    async with asyncio.timeout(60):
        assert "SIGKILL" in await second.wait()
    third = await runtime.start(make_spec(IDLE, instance_id=2))
    await third.stop(30)


class FakeProcess:
    """A zygote that says what a test says, and ends when it is killed."""

    pid = 1

    def __init__(self) -> None:
        self.returncode: int | None = None
        self.ended = asyncio.Event()

    async def wait(self) -> int:
        await self.ended.wait()
        assert self.returncode is not None
        return self.returncode

    def kill(self) -> None:
        self.returncode = -40
        self.ended.set()


class FakeInstance:
    """Remembers its end."""

    def __init__(self) -> None:
        self.end: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def has_started(self, process_id: int) -> None:
        raise ValueError(f"no process {process_id}")

    def has_ended(self, reason: str) -> None:
        self.end.set_result(reason)

    def reason_of(self, code: int, said: str, verdict: str) -> str:
        return f"{code} {said} {verdict}"

    async def close(self) -> None:
        raise OSError("not open")


class FakeWriter:
    """Takes commands."""

    def __init__(self) -> None:
        self.is_closed = False

    def write(self, data: bytes) -> None: ...

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


def fake_client() -> tuple[ZygoteClient, asyncio.StreamReader, FakeProcess]:
    process, reader, writer = FakeProcess(), asyncio.StreamReader(), FakeWriter()
    channel = ProcessChannel(process, reader, writer)  # type: ignore[arg-type]
    return ZygoteClient(channel), reader, process


BAD = [
    {"event": "ended", "id": 1},
    {"event": "started", "id": 1, "pid": 5},
    {"event": "ended", "id": 1, "code": "x", "said": "", "verdict": ""},
    {"event": "refused", "id": 1},
]


@pytest.mark.parametrize("event", BAD)
async def test_event_that_cannot_be_taken_ends_its_instance_only(event: dict[str, Any]) -> None:
    client, reader, process = fake_client()
    instances = [FakeInstance() for _ in range(2)]
    for number, instance in enumerate(instances, 1):
        client.add(number, cast(ProcessInstance, instance))
    for one in ({"nothing": 1}, event, {"event": "ended", "id": 2, "code": 3, "said": "s", "verdict": "v"}):
        reader.feed_data(encode(one))
    async with asyncio.timeout(60):
        assert await instances[0].end
        assert await instances[1].end == "3 s v"
    assert client.channel.is_open
    process.kill()
    reader.feed_eof()
    async with asyncio.timeout(60):
        await client.close()


@pytest.mark.parametrize("last", [b"", b"\xff\xff\xff\xff", b"\x00\x00\x00\x05abc"])
async def test_all_instances_are_told_when_the_client_ends(last: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the zygote does not end by itself."""
    monkeypatch.setattr("magnetar.runtime.process.runtime.ZYGOTE_END_S", 0.01)
    client, reader, _ = fake_client()
    instance = FakeInstance()
    client.add(1, cast(ProcessInstance, instance))
    reader.feed_data(last)
    reader.feed_eof()
    async with asyncio.timeout(60):
        assert await instance.end
        await client.close()
    assert not client.channel.is_open


async def test_stop_ends_though_the_zygote_does_nothing(
    runtime: ProcessRuntime, make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance: ProcessInstance = await runtime.start(make_spec(IDLE))
    zygote = psutil.Process(instance.process_id).parent()
    assert zygote is not None
    zygote.suspend()
    monkeypatch.setattr("magnetar.runtime.process.runtime.KILL_TIMEOUT_S", 3.0)
    async with asyncio.timeout(60):
        await instance.stop(0.1)
    assert "the process that starts instances was terminated by SIGKILL" in await instance.wait()

    async def is_gone() -> bool:
        return not psutil.pid_exists(instance.process_id)

    await until(is_gone)
    await (await runtime.start(make_spec(IDLE))).stop(30)


def test_every_exit_code_has_words() -> None:
    assert how_it_ended(3) == "exited with exit code 3"
    assert how_it_ended(-9) == "was terminated by SIGKILL"
    assert [how_it_ended(-number) for number in (40, 63)] == [
        f"was terminated by signal {number}" for number in (40, 63)
    ]
    assert all(how_it_ended(code) for code in range(-128, 256))


def test_instance_that_could_answer_and_does_not_is_hanging() -> None:
    liveness = Liveness(10, 0.0)
    for now_s in range(12, 200, 12):
        liveness.missed(now_s, {1: 0.0, 2: 5.0})
        if liveness.is_hanging:
            break
    assert liveness.is_silent
    assert 12 * CHECKS_MAX <= now_s <= 12 * (CHECKS_MAX + 1)
    assert f"not responded for {now_s} s" in liveness.reason(now_s)
    liveness.answered(now_s)
    assert not liveness.is_hanging
    assert not liveness.is_silent


def test_instance_that_gets_no_processor_has_longer() -> None:
    liveness = Liveness(10, 0.0)
    waited_s = 0.0
    for now_s in range(12, 200, 12):
        waited_s += 12.0
        liveness.missed(now_s, {1: 0.0, 2: waited_s, now_s: 1.0})  # threads come
        assert not liveness.is_hanging
        assert not liveness.is_silent  # status shows no error of a function that is only slow to be run
    for later_s in range(200, 200 + 12 * BUSY_FACTOR * CHECKS_MAX, 12):
        waited_s += 12.0
        liveness.missed(later_s, {2: waited_s})
    assert liveness.is_hanging


def test_time_in_which_the_worker_was_frozen_counts_for_little() -> None:
    liveness = Liveness(10, 0.0)
    liveness.missed(12.0, {})
    liveness.missed(100_000.0, {})
    assert not liveness.is_hanging
