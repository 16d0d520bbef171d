"""Sources at work: positions, acknowledgements, reopening, and what goes wrong."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from magnetar.api.connector import Record
from magnetar.client.client import AsyncClient
from magnetar.instance.connectors.positions import LOAD_TIMEOUT_S, PAUSE_S
from magnetar.instance.connectors.source import _records
from magnetar.instance.connectors.values import WrongRecord
from magnetar.instance.identity import table_of
from magnetar.instance.spec import InstanceSpec
from magnetar.runtime.thread.runtime import ThreadRuntime
from magnetar.state.client import TableClient
from magnetar.wire import functions_pb2 as records

from tests.support.eventually import until
from tests.support.exact import all_messages, count
from tests.support.function_topics import EARLIEST, receive
from tests.support.instances import MakeSpec, client, make_spec, server, topic
from tests.support.servers import Server, running

__all__ = ["client", "make_spec", "server", "topic"]

NUMBERS = """
import json, time
from pathlib import Path
from magnetar.api.connector import EndOfInput, Record, Retry, Source

class Numbers(Source):
    retry_every = 0
    last = 500

    def open(self, config, context):
        self.config, self.context = config, context
        self.number = context.position or 0
        self.reads = 0
        self.note("open", context.position)

    def note(self, *what):
        with open(self.config["notes"], "a") as file:
            file.write(json.dumps(what) + "\\n")

    def read(self):
        self.reads += 1
        if self.retry_every and self.reads % self.retry_every == 0:
            self.number += 1000  # whatever it was about to return is gone with it
            raise Retry("away")
        if self.number >= self.last:
            return self.end()
        numbers = range(self.number, min(self.number + 10, self.last))
        self.number = numbers[-1] + 1
        return [self.record(number) for number in numbers]

    def record(self, number):
        return Record(b"%d" % number)

    def end(self):
        time.sleep(0.01)

    def snapshot(self):
        return self.number

    def close(self):
        self.note("close")
"""


class Sources:
    """Runs sources that are written as text, in threads.

    Attributes:
        notes: takes the lines that a source notes.
    """

    def __init__(self, server: Server, make_spec: MakeSpec, state_url: str, tmp_path: Path) -> None:
        self.notes_file = tmp_path / "notes"
        self.notes_file.touch()
        self._make_spec = make_spec
        self._state_url = state_url
        self.runtime = ThreadRuntime(server.service_url)

    def spec(self, code: str = "", **details: object) -> InstanceSpec:
        source = {
            "className": "user_code.Mine",
            "configs": json.dumps({"notes": str(self.notes_file)}),
        }
        details = {"source": source, "componentType": records.FunctionDetails.SOURCE} | details
        spec = self._make_spec(NUMBERS + "\nclass Mine(Numbers):\n    pass\n" + code, **details)
        spec.metadata.functionUuid = self.notes_file.parent.name
        return replace(spec, state_url=self._state_url)

    def notes(self, kind: str = "") -> list[list[object]]:
        lines = [json.loads(line) for line in self.notes_file.read_text().splitlines()]
        return [line for line in lines if not kind or line[0] == kind]


@pytest.fixture(scope="module")
def state_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running("state-store", tmp_path_factory.mktemp("state")) as server:
        yield str(server.addresses["stateStorageServiceUrl"])


@pytest.fixture
async def sources(server: Server, make_spec: MakeSpec, state_url: str, tmp_path: Path) -> AsyncIterator[Sources]:
    sources = Sources(server, make_spec, state_url, tmp_path)
    yield sources
    await sources.runtime.close()


def noted(sources: Sources, kind: str, times: int = 1) -> Callable[[], Awaitable[bool]]:
    async def is_there() -> bool:
        return len(sources.notes(kind)) >= times

    return is_there


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


async def test_reopened_source_goes_on_behind_what_it_handed_over(
    client: AsyncClient, sources: Sources, topic: str
) -> None:
    instance = await sources.runtime.start(sources.spec("    retry_every = 5\n    last = 100\n"))
    assert [message.data for message in await receive(client, f"{topic}-out", 100)] == numbers(0, 100)
    await until(noted(sources, "open", 3))
    assert [position for _, position in sources.notes("open")][:3] == [None, 40, 80]
    await instance.stop(10)


async def test_reopening_waits_until_all_that_was_handed_over_is_durable(
    client: AsyncClient, server: Server, sources: Sources, topic: str
) -> None:
    """What a source throws away when it is opened behind a record must be stored."""
    code = f"""
    last, freezes = 100, True
    def read(self):
        import os, signal
        if self.number == 50 and Mine.freezes:
            Mine.freezes = False
            raise Retry("away")
        if self.number == 40:
            os.kill({server.pid}, signal.SIGSTOP)
        return super().read()
"""
    instance = await sources.runtime.start(sources.spec(code))
    try:
        await until(noted(sources, "close"))
        with pytest.raises(TimeoutError):
            await until(noted(sources, "open", 2), timeout_s=1.0)
        assert "retrying" in (await instance.status()).failureException
    finally:
        os.kill(server.pid, signal.SIGCONT)
    assert [message.data for message in await receive(client, f"{topic}-out", 100)] == numbers(0, 100)
    assert [position for _, position in sources.notes("open")] == [None, 50]
    await instance.stop(10)


async def test_source_begins_where_the_last_one_was_stopped(client: AsyncClient, sources: Sources, topic: str) -> None:
    spec = sources.spec("    last = 200\n")
    for times in (1, 2):
        instance = await sources.runtime.start(spec)
        await receive(client, f"{topic}-out", 200)
        await until(noted(sources, "open", times))
        await instance.stop(10)
    assert [position for _, position in sources.notes("open")] == [None, 200]
    assert len(sources.notes("close")) == 2


async def test_a_stop_that_cannot_keep_the_position_says_so(
    client: AsyncClient, sources: Sources, state_store: Server, topic: str
) -> None:
    spec = replace(sources.spec("    last = 10**9\n"), state_url=str(state_store.addresses["stateStorageServiceUrl"]))
    consumer = await client.subscribe(f"{topic}-out", "test", EARLIEST)
    instance = await sources.runtime.start(spec)
    await consumer.receive(30)
    os.kill(state_store.pid, signal.SIGSTOP)
    try:
        last = int((await consumer.receive(30)).data)
        while int((await consumer.receive(30)).data) < last + 2000:
            pass
        await instance.stop(10)
    finally:
        os.kill(state_store.pid, signal.SIGCONT)
    assert spec.log_file.read_text().count("WARNING cannot save the last position") == 1
    again = await sources.runtime.start(spec)
    await until(noted(sources, "open", 2))
    await again.stop(10)
    assert spec.log_file.read_text().count("cannot save the last position") == 1


ACKNOWLEDGED = """
    def record(self, number):
        return Record(b"%d" % number, acknowledge=lambda: self.note("ack", number, self.opened))

    def open(self, config, context):
        super().open(config, context)
        self.opened = context.position
"""


async def test_records_are_acknowledged_in_order_once_they_are_durable_also_the_last_before_a_stop(
    client: AsyncClient, sources: Sources, topic: str
) -> None:
    end = "    def end(self):\n        time.sleep(0.5)\n"
    instance = await sources.runtime.start(sources.spec("    last = 30\n" + end + ACKNOWLEDGED))
    await receive(client, f"{topic}-out", 30)
    await instance.stop(10)
    assert [number for _, number, _ in sources.notes("ack")] == list(range(30))
    assert sources.notes()[-1] == ["close"]


async def test_acknowledgements_of_an_earlier_opening_are_not_given_to_a_later_one(
    client: AsyncClient, sources: Sources, topic: str
) -> None:
    code = """
    last = 40
    def record(self, number):
        opened = self.opened
        def acknowledge():
            self.note("ack", number, opened, self.opened)
            if number in (12, 25):
                raise Retry("away")
        return Record(b"%d" % number, acknowledge=acknowledge)
    def open(self, config, context):
        super().open(config, context)
        self.opened = context.position
"""
    instance = await sources.runtime.start(sources.spec(code))
    messages = await receive(client, f"{topic}-out", 40)
    assert [message.data for message in messages] == numbers(0, 40)
    await until(noted(sources, "open", 2))
    await instance.stop(10)
    for _, _, read_in, called_in in sources.notes("ack"):
        assert read_in == called_in


async def test_unexpected_exception_ends_the_instance_with_its_traceback(
    client: AsyncClient, sources: Sources, topic: str
) -> None:
    code = "    last = 50\n    def end(self):\n        return 1 // (self.number - 50)\n"
    instance = await sources.runtime.start(sources.spec(code))
    reason = await instance.wait()
    assert "ZeroDivisionError" in reason
    assert "in end" in reason
    assert await all_messages(client, f"{topic}-out") == numbers(0, 50)
    again = await sources.runtime.start(sources.spec("    last = 60\n"))
    await receive(client, f"{topic}-out", 60)
    assert sources.notes("open")[-1] == ["open", 50]
    await again.stop(10)


async def test_source_at_its_end_is_not_read_again_and_stays(client: AsyncClient, sources: Sources, topic: str) -> None:
    code = """
    last = 20
    def end(self):
        self.note("end")
        raise EndOfInput("all is read")
"""
    instance = await sources.runtime.start(sources.spec(code + ACKNOWLEDGED))
    await receive(client, f"{topic}-out", 20)
    await until(noted(sources, "ack", 20))
    status = await instance.status()
    assert status.running
    assert status.failureException == ""
    await instance.stop(10)
    assert len(sources.notes("end")) == 1


async def test_position_moves_also_where_nothing_is_read(sources: Sources, state_url: str) -> None:
    code = """
    last = 0
    def end(self):
        self.number = 7
"""
    spec = sources.spec(code)
    instance = await sources.runtime.start(spec)
    client = TableClient(state_url)

    async def is_kept() -> bool:
        (value,) = await asyncio.to_thread(client.read, table_of(spec.metadata), [b"__position__/0"])
        return value is not None and json.loads(value.data)["position"] == 7

    await until(is_kept)
    client.close()
    await instance.stop(10)


async def test_live_position_is_kept_as_it_was_when_it_was_asked_for(
    client: AsyncClient, sources: Sources, topic: str
) -> None:
    """A source may return the same object each time; what is kept is what it held then."""
    code = """
    last = 1000
    def open(self, config, context):
        self.at = context.position or {"number": 0}
        super().open(config, context)
        self.number = self.at["number"]
    def snapshot(self):
        self.at["number"] = self.number
        return self.at
    def end(self):
        self.at["number"] = 99999  # of what is not read yet
        time.sleep(0.5)
"""
    instance = await sources.runtime.start(sources.spec(code))
    await receive(client, f"{topic}-out", 1000)
    await instance.stop(10)
    again = await sources.runtime.start(sources.spec(code))
    await until(noted(sources, "open", 2))
    await again.stop(10)
    assert sources.notes("open")[1] == ["open", {"number": 1000}]


async def test_records_that_cannot_be_sent_go_to_the_dead_letter_topic(
    client: AsyncClient, sources: Sources, topic: str
) -> None:
    code = """
    last = 9
    def record(self, number):
        return [
            Record(b"plain"), Record("no \\ud800"), Record("ä", key="k\\ud800"), Record(b"x" * 6_000_000),
            Record(None, key="gone"), Record("ü", key="", properties={"p": "ß"}), Record(b"at", event_time_ms=5),
            Record(b"wrong time", event_time_ms=-1), Record(bytearray(b"array")),
        ][number]
"""
    instance = await sources.runtime.start(sources.spec(code))
    messages = await receive(client, f"{topic}-out", 5)
    assert [message.data for message in messages] == [b"plain", b"", "ü".encode(), b"at", b"array"]
    assert [message.key for message in messages] == [None, "gone", "", None, None]
    assert messages[2].properties == {"p": "ß"}
    status = await instance.status()
    assert status.running
    await instance.stop(10)
    log = sources.spec().log_file.read_text()
    assert log.count("sending a record to the dead-letter topic") == 4
    assert "invalid event_time_ms -1: expected milliseconds since 1970" in log
    assert "record of 6000000 bytes exceeds the message size limit of" in log
    async with await client.subscribe(f"{topic}-out-f-DLQ", "public/default/f-dead-letters") as kept:
        letters = [await kept.receive(10) for _ in range(5)]
    assert [letter.data for letter in letters[:2]] == [b"no \\ud800", "ä".encode()]
    assert letters[1].key == "k\\ud800"
    assert [letter.properties["PART"] for letter in letters[2:4]] == ["1 of 2", "2 of 2"]
    assert b"".join(letter.data for letter in letters[2:4]) == b"x" * 6_000_000
    assert (letters[4].data, letters[4].properties["FUNCTION"]) == (b"wrong time", "public/default/f")
    assert "UnicodeEncodeError" in letters[0].properties["EXCEPTION"]


async def test_sender_of_a_record_that_cannot_be_sent_receives_the_reason(
    client: AsyncClient, sources: Sources, topic: str
) -> None:
    code = """
    last = 3
    def record(self, number):
        value = "bad \\ud800" if number == 1 else f"good {number}"
        refuse = lambda reason: self.note("refused", reason)
        return Record(value, acknowledge=lambda: self.note("ack", number), refuse=refuse)
"""
    instance = await sources.runtime.start(sources.spec(code))
    messages = await receive(client, f"{topic}-out", 2)
    assert [message.data for message in messages] == [b"good 0", b"good 2"]
    await until(noted(sources, "ack", 2))
    await instance.stop(10)
    ((_, reason),) = sources.notes("refused")
    assert "surrogates not allowed" in str(reason)
    assert sources.notes("ack") == [["ack", 0], ["ack", 2]]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ('Record({"no": "bytes"})', "a record's value of type dict requires a SerDe: return str or bytes"),
        ('Record("v", key=7)', "a record's key must be a str, not int"),
        ('Record("v", key=b"k")', "a record's key must be a str, not bytes"),
        (
            'Record("v", event_time_ms=1.5)',
            "a record's event_time_ms must be an int, milliseconds since 1970, not float",
        ),
        ('Record("v", properties=[("a", "b")])', "a record's properties must be a dict of str, not list"),
    ],
)
async def test_a_record_of_a_wrong_type_ends_the_instance_and_is_not_lost(
    client: AsyncClient, server: Server, sources: Sources, topic: str, given: str, said: str
) -> None:
    code = f"""
    last = 3
    def record(self, number):
        return Record("good") if number < 2 else {given}
"""
    instance = await sources.runtime.start(sources.spec(code))
    assert said in await instance.wait()
    assert "to the dead-letter topic" not in sources.spec().log_file.read_text()
    good = "    last = 3\n    def record(self, number):\n        return Record('good' if number < 2 else 'mended')\n"
    instance = await sources.runtime.start(sources.spec(good))
    messages = await receive(client, f"{topic}-out", 3)
    assert messages[-1].data == b"mended"
    await instance.stop(10)


async def test_a_stop_does_not_wait_for_a_store_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, sources: Sources
) -> None:
    monkeypatch.setattr("magnetar.instance.pipeline.SHOWN_AFTER_S", 0.2)
    instance = await sources.runtime.start(replace(sources.spec(), state_url="bk://127.0.0.1:1"))

    async def is_shown() -> bool:
        return "position of the source: not open after" in (await instance.status()).failureException

    await until(is_shown)
    async with asyncio.timeout(LOAD_TIMEOUT_S / 2):
        await instance.stop(1)
    assert await instance.wait() == ""
    assert "not open" not in (await instance.status()).failureException
    assert sources.notes() == []  # it would begin anew, as nobody knows its position


async def test_a_topic_that_cannot_be_written_to_is_named(sources: Sources) -> None:
    code = "    def record(self, number):\n        return Record('v', topic='public/nowhere/t')\n"
    instance = await sources.runtime.start(sources.spec(code))
    assert "not stored in public/nowhere/t, their own topic: TopicNotFound" in await instance.wait()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (5, "a value of type int"),
        (0, "a value of type int"),
        (b"text", "a value of type bytes"),
        ("text", "a value of type str"),
        ({"a": 1}, "a value of type dict"),
        ((Record(letter) for letter in "ab"), "a value of type generator"),
        ([Record("a"), 5], "a list with a value of type int"),
    ],
)
def test_what_read_returned_is_named_where_it_is_no_record(given: object, said: str) -> None:
    with pytest.raises(WrongRecord) as raised:
        _records(given)
    assert str(raised.value) == f"read returned {said}: expected a Record, a list of Records, or None"


async def test_keys_keep_their_partition_and_their_order(
    client: AsyncClient, server: Server, sources: Sources, topic: str
) -> None:
    async with httpx.AsyncClient(base_url=server.web_url, timeout=60) as http:
        path = f"/admin/v2/{topic.replace('://', '/')}-out/partitions"
        (await http.put(path, json=3)).raise_for_status()
    code = "    last = 300\n    def record(self, number):\n        return Record(b'%d' % number, key=str(number % 7))\n"
    instance = await sources.runtime.start(sources.spec(code))

    async def are_there() -> bool:
        return await count(client, f"{topic}-out") == 300

    await until(are_there)
    found: dict[int, int] = {}
    for index, partition in enumerate(await client.partitions(f"{topic}-out")):
        last: dict[int, int] = {}
        for number in map(int, await all_messages(client, partition)):
            assert found.setdefault(number % 7, index) == index
            assert last.get(number % 7, -1) < number
            last[number % 7] = number
    assert len(found) == 7
    assert len(set(found.values())) > 1
    await instance.stop(10)


async def test_records_that_name_a_topic_go_there_in_order(client: AsyncClient, sources: Sources, topic: str) -> None:
    code = f"""
    last = 300
    def record(self, number):
        return Record(b"%d" % number, topic="{topic}-other" if number % 3 else "")
"""
    instance = await sources.runtime.start(sources.spec(code))
    others = await receive(client, f"{topic}-other", 200)
    assert [int(message.data) for message in others] == [number for number in range(300) if number % 3]
    rest = await receive(client, f"{topic}-out", 100)
    assert [int(message.data) for message in rest] == list(range(0, 300, 3))
    await instance.stop(10)


async def test_a_record_without_a_value_that_names_a_topic_has_none_there(
    client: AsyncClient, sources: Sources, topic: str
) -> None:
    code = f"""
    last = 2
    def record(self, number):
        return Record(None if number else b"", key="k", topic="{topic}-other")
"""
    instance = await sources.runtime.start(sources.spec(code))
    others = await receive(client, f"{topic}-other", 2)
    headers = [(other.entry.headers or [])[other.message_id.batch_index] for other in others]
    assert [header.null_value for header in headers] == [False, True]
    await instance.stop(10)


async def test_position_does_not_move_past_what_was_not_stored(
    client: AsyncClient, server: Server, sources: Sources, topic: str
) -> None:
    code = """
    last = 100_000
    def read(self):
        time.sleep(0.005)
        return super().read()
    def record(self, number):
        return Record(b"%d" % number, fail=lambda: self.note("fail", number))
"""
    instance = await sources.runtime.start(sources.spec(code))

    async def has_begun() -> bool:
        return await count(client, f"{topic}-out") > 50

    await until(has_begun)
    async with httpx.AsyncClient(base_url=server.web_url, timeout=60) as http:
        path = f"/admin/v2/{topic.replace('://', '/')}-out/terminate"
        (await http.post(path)).raise_for_status()
    reason = await instance.wait()
    assert "records were not stored: TopicTerminated" in reason
    stored = [int(data) for data in await all_messages(client, f"{topic}-out")]
    assert stored == list(range(len(stored)))
    failed = [number for _, number in sources.notes("fail")]
    assert int(str(failed[0])) <= len(stored)  # some were stored, and their receipts lost
    again = await sources.runtime.start(sources.spec(code, sink={"topic": f"{topic}-else"}))
    await until(noted(sources, "open", 2))
    assert sources.notes("open")[1][1] == failed[0]
    await again.stop(10)


async def test_an_instance_whose_successor_keeps_positions_stops(
    sources: Sources, client: AsyncClient, topic: str, state_url: str
) -> None:
    code = f"""
    last = 10**9
    def read(self):
        time.sleep({PAUSE_S / 4})
        return super().read()
"""
    spec = sources.spec(code)
    first = await sources.runtime.start(spec)

    async def has_begun() -> bool:
        return await count(client, f"{topic}-out") > 0

    await until(has_begun)
    second = await sources.runtime.start(replace(spec, log_file=spec.log_file.with_suffix(".second")))
    done, _ = await asyncio.wait(
        [asyncio.ensure_future(first.wait()), asyncio.ensure_future(second.wait())],
        return_when=asyncio.FIRST_COMPLETED,
        timeout=30,
    )
    (ended,) = done
    assert "a newer instance of public/default/f:0 has saved its position" in ended.result()
    await first.stop(10)
    await second.stop(10)


async def test_source_without_state_store_says_that_it_begins_anew(
    client: AsyncClient, sources: Sources, topic: str
) -> None:
    instance = await sources.runtime.start(replace(sources.spec("    last = 10\n"), state_url=""))
    await receive(client, f"{topic}-out", 10)
    assert "the position is not saved" in (await instance.status()).failureException
    await instance.stop(10)


async def test_effectively_once_records_are_acknowledged_behind_their_position(
    client: AsyncClient, server: Server, sources: Sources, topic: str, state_url: str
) -> None:
    """What a source throws away when it is told must never be asked for again."""
    code = """
    last = 300
    def not_effectively_once(self, config):
        return ""
    def kept(self):
        from magnetar.state.client import TableClient
        tables = TableClient(self.config["state"])
        (value,) = tables.read(self.config["table"], [b"__position__/0"])
        tables.close()
        return json.loads(value.data)["position"] if value else 0
    def record(self, number):
        return Record(b"%d" % number, acknowledge=lambda: number % 10 or self.note("ack", number, self.kept()))
"""
    spec = sources.spec(code, processingGuarantees=records.EFFECTIVELY_ONCE)
    configs = json.loads(spec.details.source.configs) | {"state": state_url, "table": table_of(spec.metadata)}
    spec.details.source.configs = json.dumps(configs)
    instance = await sources.runtime.start(replace(spec, admin_url=server.web_url))
    await receive(client, f"{topic}-out", 300)
    await instance.stop(10)
    acknowledged = [(int(str(number)), int(str(kept))) for _, number, kept in sources.notes("ack")]
    assert [number for number, _ in acknowledged] == list(range(0, 300, 10))
    assert all(number < kept for number, kept in acknowledged)
