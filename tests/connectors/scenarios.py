"""Scenarios of the conformance suite: many records across kills, few with threads, and invalid configurations.

10,000 records with keys, properties, nulls and unicode, ten of them as large as the system accepts, pass through the
connector in three parts. During the second part the other system is killed, and restarted with another process id when
the instance's status shows three attempts. During the third part the instance's process is killed and replaced. No
record may be missing or changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import re
import signal
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import pulsar
from magnetar.api.connector import Connector
from magnetar.api.connector_config import read_config
from magnetar.config.batch_source import joined
from magnetar.connectors.register import find
from magnetar.errors import InvalidConfig
from magnetar.instance.spec import InstanceSpec
from magnetar.runtime.interface import Instance, Runtime
from magnetar.runtime.process.runtime import ProcessInstance, ProcessRuntime
from magnetar.runtime.thread.runtime import ThreadRuntime
from magnetar.wire import functions_pb2
from magnetar.wire.functions_pb2 import FunctionStatus

from tests.connectors.cases.base import Case, SinkCase, SourceCase
from tests.support.eventually import eventually, until
from tests.support.function_topics import no_backlog
from tests.support.instances import spec_maker
from tests.support.servers import Server

COUNT = 10_000
LARGE = 10
FEW = 300
TRIES = 3
WORDS = ("Ärger", "naïve", "東京", "مرحبا", "🙂🚀", "plain", 'quo"te', "back\\slash", "tab\there", "semi;colon,comma")
RECEIVE_MS = 10_000
SILENCE_MS = 300

_C = TypeVar("_C", bound=Case)


def make_records(case: Case, count: int) -> list[tuple[int, str]]:
    """Return ids and strings, always the same; ten strings are as large as the system accepts."""
    rng = random.Random(count)
    records = [(number, " ".join(rng.choices(WORDS, k=rng.randrange(1, 8)))) for number in range(count)]
    for number in range(count // LARGE // 2, count, max(count // LARGE, 1)):
        overhead = len(case.value(number, "")) if isinstance(case, SinkCase) else 100
        records[number] = (number, rng.choice("abcdefgh") * (case.largest - overhead))
    return records


def compare(
    expected: list[tuple[int, str]], found: Iterable[tuple[int, str]], *, is_exact: bool, is_ordered: bool
) -> None:
    """Fail if a record is missing, changed, duplicated without cause, or in the wrong place."""
    texts = dict(expected)
    found = list(found)
    others = [(number, text[:100]) for number, text in found if texts.get(number) != text]
    assert not others, f"{len(others)} were never sent like this: {others[:5]}"
    counts = Counter(number for number, _ in found)
    missing = [number for number, _ in expected if number not in counts]
    assert not missing, f"{len(missing)} of {len(expected)} are missing: {missing[:20]}"
    doubles = [number for number, count in counts.items() if count > 1]
    if is_exact:
        assert not doubles, f"{len(doubles)} are there twice: {doubles[:20]}"
    if is_ordered:
        first = list(dict.fromkeys(number for number, _ in found))
        late = [number for before, number in itertools.pairwise(first) if number < before]
        assert not late, f"{len(late)} come too late: {late[:20]}"


@dataclass
class Place:
    """The environment of a scenario.

    Attributes:
        broker: broker of the topics.
        state_url: URL of the state store.
        directory: directory of the test.
    """

    broker: Server
    state_url: str
    directory: Path


class Scenario(ABC, Generic[_C]):
    """A running case, with its own topics.

    Attributes:
        feeds_target: whether records are written to the other system, which must then be available.
    """

    feeds_target: ClassVar[bool]

    def __init__(self, case: _C, place: Place) -> None:
        self.case = case
        self.place = place
        self.name = f"{case.kind}-{case.connector}-{uuid.uuid4().hex[:8]}"
        self.topic = f"persistent://public/default/{self.name}"
        self.client = pulsar.Client(place.broker.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))

    # -- the scenarios ------------------------------------------------------------------------------------------------

    async def run_across_kills(self) -> None:
        """Pass all records through while the other system and the instance are killed."""
        case = self.case
        records = self.records(COUNT)
        parts = [records[: COUNT // 3], records[COUNT // 3 : 2 * COUNT // 3], records[2 * COUNT // 3 :]]
        await asyncio.to_thread(case.prepare)
        async with _closing(ProcessRuntime()) as runtime:
            instance = await runtime.start(self.spec(case.configs()))
            await self.give(parts[0])
            await self.processed(instance, len(parts[0]) // 3)
            before = await self.status_of(instance)
            early = len(parts[1]) if self.feeds_target else len(parts[1]) // 2
            await self.give(parts[1][:early])
            if case.has_target:
                await asyncio.to_thread(case.take_away)
            await self.give(parts[1][early:])
            if case.has_target:
                await eventually(lambda: self.tries(instance, TRIES), f"{TRIES} tries in the status")
                await asyncio.to_thread(case.bring_back)
            await self.give_bad()
            await self.processed(instance, before.numSuccessfullyProcessed + 1)
            await self.give(parts[2])
            assert isinstance(instance, ProcessInstance)
            os.kill(instance.process_id, signal.SIGKILL)
            assert "SIGKILL" in await instance.wait()
            instance = await runtime.start(self.spec(case.configs()))
            await _while_running(instance, self.check(records, is_whole=True))
            await instance.stop(20)

    async def run_with_threads(self) -> None:
        """Pass a few records through in the worker's own process."""
        case = self.case
        records = self.records(FEW)
        await asyncio.to_thread(case.prepare)
        async with _closing(ThreadRuntime(self.place.broker.service_url)) as runtime:
            instance = await runtime.start(self.spec(case.configs()))
            await self.give(records)
            await _while_running(instance, self.check(records, is_whole=False))
            await instance.stop(20)
            assert not await instance.wait()

    async def run_with_bad_config(self, change: dict[str, Any], text: str) -> None:
        """Check that an invalid configuration is rejected when it is read, or shown in the instance's status."""
        case = self.case
        configs = {key: value for key, value in (case.configs() | change).items() if value is not None}
        self.records(10)
        refusal = "" if case.class_name else _refusal(find(case.kind, case.connector), configs)
        if refusal:
            assert text in refusal
            assert "\n" not in refusal
            return
        await asyncio.to_thread(case.prepare)
        async with _closing(ThreadRuntime(self.place.broker.service_url)) as runtime:
            instance = await runtime.start(self.spec(configs))
            await self.give(self.records(10))
            last = ""

            async def says_it() -> bool:
                nonlocal last
                last = (await instance.status()).failureException or last
                return text in last

            try:
                await until(says_it, 30)
            except TimeoutError:
                raise AssertionError(f"no {text!r} in the status; the last was {last!r}") from None
            await instance.stop(5)

    def close(self) -> None:
        """Close the client."""
        self.client.close()

    # -- what differs -------------------------------------------------------------------------------------------------

    @abstractmethod
    async def give(self, records: list[tuple[int, str]]) -> None:
        """Write records to the input of the connector."""

    @abstractmethod
    async def give_bad(self) -> None:
        """Write an invalid record."""

    @abstractmethod
    async def check(self, records: list[tuple[int, str]], *, is_whole: bool) -> None:
        """Wait until all records have arrived, and compare them, including an invalid record after a full run."""

    @abstractmethod
    def details(self, configs: dict[str, object]) -> dict[str, object]:
        """Return the connector's part of the function details."""

    def records(self, count: int) -> list[tuple[int, str]]:
        """Return records, and set their number in the case."""
        self.case.count = count
        return make_records(self.case, count)

    # -- inside -------------------------------------------------------------------------------------------------------

    def spec(self, configs: dict[str, object]) -> InstanceSpec:
        make = spec_maker(self.place.broker.service_url, self.place.directory, self.topic)
        guarantees = functions_pb2.ProcessingGuarantees.Value(self.case.processing_guarantees)
        spec = make(
            dict(self.case.package), "", name=self.name, processingGuarantees=guarantees, **self.details(configs)
        )
        self.case.log_file = spec.log_file
        return replace(spec, admin_url=self.place.broker.web_url, state_url=self.place.state_url)

    def part(self, configs: dict[str, object]) -> dict[str, object]:
        case = self.case
        name = {"className": case.class_name} if case.class_name else {"builtin": case.connector}
        return {**name, "configs": json.dumps(configs)}

    async def status_of(self, instance: Instance) -> FunctionStatus:
        status = await instance.status()
        assert status.running or not status.failureException or "retrying" in status.failureException, status
        return status

    async def processed(self, instance: Instance, count: int) -> None:
        """Return whether an instance has processed a number of records since its start."""

        async def are() -> bool:
            return (await self.status_of(instance)).numSuccessfullyProcessed >= count

        await until(are)

    async def tries(self, instance: Instance, count: int) -> bool:
        found = re.search(r"retrying \((\d+) attempt", (await self.status_of(instance)).failureException)
        return found is not None and int(found[1]) >= count


class SinkScenario(Scenario[SinkCase]):
    """Sends messages of the official client, and compares the records in the other system."""

    feeds_target = False

    def details(self, configs: dict[str, object]) -> dict[str, object]:
        sink = {**self.part(configs), "typeClassName": "none"}
        # As create has it: one reader for each partition.
        is_ordered = self.case.processing_guarantees == "EFFECTIVELY_ONCE"
        source = {"subscriptionType": functions_pb2.FAILOVER if is_ordered else functions_pb2.SHARED}
        return {"source": source, "sink": sink, "componentType": functions_pb2.FunctionDetails.SINK}

    async def give(self, records: list[tuple[int, str]]) -> None:
        case = self.case
        await asyncio.to_thread(
            self._send, [(case.value(*record), case.key(record[0]), record[0]) for record in records]
        )

    async def give_bad(self) -> None:
        if (bad := self.case.bad_record()) is not None:
            await asyncio.to_thread(self._send, [(bad, "bad", -1)])

    def _send(self, messages: list[tuple[bytes, str | None, int]]) -> None:
        producer = self.client.create_producer(
            f"{self.topic}-in", batching_enabled=True, batching_max_messages=500, block_if_queue_full=True,
        )  # fmt: skip
        failures: list[object] = []

        def sent(result: pulsar.Result, _: object) -> None:
            if result != pulsar.Result.Ok:
                failures.append(result)

        for payload, key, number in messages:
            properties = {"number": str(number), "länge": str(len(payload))} if number % 3 else {}
            producer.send_async(
                payload, sent, partition_key=key, properties=properties, event_timestamp=1_700_000_000_000 + number
            )  # fmt: skip
        producer.flush()
        producer.close()
        assert not failures

    async def check(self, records: list[tuple[int, str]], *, is_whole: bool) -> None:
        case = self.case
        await no_backlog(self.place.broker, f"{self.topic}-in", f"public/default/{self.name}")
        expected = {number for number, _ in records}
        found: list[tuple[int, str]] = []

        async def are_there() -> bool:
            found[:] = await asyncio.to_thread(case.read_back)
            return expected <= {number for number, _ in found}

        with contextlib.suppress(TimeoutError):  # `compare` says what is missing
            await until(are_there, 60)
        is_exact = case.is_exact or case.processing_guarantees == "EFFECTIVELY_ONCE"
        compare(records, found, is_exact=is_exact or not is_whole, is_ordered=case.is_ordered)
        if is_whole and (bad := case.bad_record()) is not None:
            refused = await asyncio.to_thread(self._refused)
            assert set(refused) == {bad}, f"{len(refused)} in the dead-letter topic: {refused[:3]}"

    def _refused(self) -> list[bytes]:
        reader = self.client.create_reader(f"{self.topic}-in-{self.name}-DLQ", pulsar.MessageId.earliest)
        refused = []
        while reader.has_message_available():
            refused.append(reader.read_next(RECEIVE_MS).data())
        reader.close()
        return refused


class SourceScenario(Scenario[SourceCase]):
    """Writes records to the other system, and compares the messages of the topic."""

    feeds_target = True

    def details(self, configs: dict[str, object]) -> dict[str, object]:
        source = self.part(configs)
        if self.case.batch:
            source["configs"] = json.dumps(joined(configs, self.case.batch, None))
        return {"source": source, "componentType": functions_pb2.FunctionDetails.SOURCE}

    async def give(self, records: list[tuple[int, str]]) -> None:
        if records:
            await asyncio.to_thread(self.case.feed, records)

    async def give_bad(self) -> None:
        await asyncio.to_thread(self.case.feed_bad)

    async def check(self, records: list[tuple[int, str]], *, is_whole: bool) -> None:
        case = self.case
        found = await asyncio.to_thread(self._received, {number for number, _ in records})
        is_exact = case.is_exact or case.processing_guarantees == "EFFECTIVELY_ONCE"
        compare(records, found, is_exact=is_exact or not is_whole, is_ordered=case.is_ordered)

    def _received(self, wanted: set[int]) -> list[tuple[int, str]]:
        """Read until all expected messages have arrived and no more follow."""
        reader = self.client.create_reader(
            f"{self.topic}-out", pulsar.MessageId.earliest, receiver_queue_size=5000
        )  # fmt: skip
        found: list[tuple[int, str]] = []
        missing = set(wanted)
        with contextlib.suppress(pulsar.Timeout):
            while True:
                record = self.case.identify(reader.read_next(RECEIVE_MS if missing else SILENCE_MS))
                found.append(record)
                missing.discard(record[0])
        reader.close()
        return found


def scenario_of(case: Case, place: Place) -> Scenario[Any]:
    """Return the scenarios of a case."""
    return SinkScenario(case, place) if isinstance(case, SinkCase) else SourceScenario(case, place)  # type: ignore[arg-type]


async def _while_running(instance: Instance, work: Coroutine[Any, Any, None]) -> None:
    """Await work that requires an instance, and fail if the instance ends first."""
    working, ending = asyncio.ensure_future(work), asyncio.ensure_future(instance.wait())
    await asyncio.wait((working, ending), return_when=asyncio.FIRST_COMPLETED)
    if not working.done():
        working.cancel()
        raise AssertionError(f"the instance has ended: {ending.result()}")
    ending.cancel()
    await working


def _refusal(connector: type[Connector], configs: dict[str, object]) -> str:
    """Return why a configuration is rejected before the connector is opened, or an empty string."""
    try:
        connector().check(read_config(connector.config, configs))
    except InvalidConfig as error:
        return str(error)
    return ""


@contextlib.asynccontextmanager
async def _closing(runtime: Runtime) -> AsyncIterator[Runtime]:
    try:
        yield runtime
    finally:
        await runtime.close()
