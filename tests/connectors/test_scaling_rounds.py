"""Rounds in which a source is scaled and restarted at random moments under load: nothing is lost."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest
from magnetar.client.client import AsyncClient

from tests.connectors.scaled import Scaled
from tests.connectors.servers.kafka import TIMEOUT_S, KafkaServer
from tests.support.instances import topic
from tests.support.servers import Server, running

__all__ = ["topic"]
pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]

SEEDS = int(os.environ.get("MAGNETAR_CONNECTOR_SEEDS", "4"))
STEPS = 7
PARTS = 300
LINES = 20


class Load(ABC):
    """What a source reads, written while it is scaled.

    Attributes:
        kind: of the source.
        expected: the values that must come.
        is_parallel: whether it may have several instances.
    """

    kind: ClassVar[str]
    is_parallel: ClassVar[bool] = True

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory, self.seed = directory, seed
        self.expected: set[bytes] = set()

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Return the settings of the source, without its name and topic."""

    @abstractmethod
    def write(self, part: int) -> None:
        """Write one of `PARTS` parts."""

    async def run(self) -> None:
        for part in range(PARTS):
            await asyncio.to_thread(self.write, part)
            await asyncio.sleep(0.05)  # the pace of the load, not a wait

    def lines(self, part: int) -> list[str]:
        lines = [f"{part} {line}" for line in range(LINES)]
        self.expected.update(line.encode() for line in lines)
        return lines


class Files(Load):
    """Files of lines, moved into place."""

    kind = "file"

    def config(self) -> dict[str, Any]:
        return {"configs": {"inputDirectory": str(self.directory), "pollingInterval": 50, "keepFile": True}}

    def write(self, part: int) -> None:
        hidden = self.directory / f".{part}"
        hidden.write_text("".join(f"{line}\n" for line in self.lines(part)))
        hidden.rename(self.directory / f"{part}.txt")


class Objects(Files):
    """The same files, as the tasks of a batch source."""

    kind = "s3"

    def config(self) -> dict[str, Any]:
        cron = {"__CRON__": "* * * * * *"}
        trigger = {"discoveryTriggererClassName": "cron", "discoveryTriggererConfig": cron}
        configs = {"path": f"file://{self.directory}", "suffix": ".txt"}
        return {"configs": configs, "batchSourceConfig": trigger}


class Numbers(Load):
    """What the source makes itself."""

    kind = "generator"

    def config(self) -> dict[str, Any]:
        count = PARTS * LINES
        self.expected.update(json.dumps({"n": n}).encode() for n in range(count))
        return {"configs": {"fields": {"n": "sequence"}, "rate": 400, "count": count}}

    def write(self, part: int) -> None:
        """Nothing is written."""


class Rows(Load):
    """Rows of a table. Only one instance can read them."""

    kind = "jdbc-poll"
    is_parallel = False

    def __init__(self, directory: Path, seed: int) -> None:
        super().__init__(directory, seed)
        self.database = directory / "rows.db"
        with closing(sqlite3.connect(self.database)) as database:
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("CREATE TABLE t (id integer PRIMARY KEY, v text)")

    def config(self) -> dict[str, Any]:
        configs = {"jdbcUrl": f"jdbc:sqlite:{self.database}", "tableName": "t", "incrementingColumn": "id"}
        return {"configs": configs | {"pollIntervalMs": 50, "batchSize": 50}}

    def write(self, part: int) -> None:
        ids = [(part * LINES + line, f"{part} {line}") for line in range(LINES)]
        self.expected.update(json.dumps({"id": key, "v": v}, separators=(",", ":")).encode() for key, v in ids)
        with closing(sqlite3.connect(self.database, timeout=30)) as database, database:
            database.executemany("INSERT INTO t VALUES (?, ?)", ids)


class Partitions(Load):
    """Records of a topic of Apache Kafka with several partitions."""

    kind = "kafka"

    def __init__(self, directory: Path, seed: int, kafka: KafkaServer) -> None:
        super().__init__(directory, seed)
        from confluent_kafka import Producer

        self.kafka, self.topic = kafka, kafka.create_topic(5)
        self.producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})

    def config(self) -> dict[str, Any]:
        configs: dict[str, Any] = {"bootstrapServers": self.kafka.bootstrap_servers, "topic": self.topic}
        # Who is gone for good keeps its partitions until its session ends.
        session = {"sessionTimeoutMs": 2000, "heartbeatIntervalMs": 400, "autoCommitIntervalMs": 300}
        return {"configs": configs | {"groupId": f"g-{self.topic}"} | session}

    def write(self, part: int) -> None:
        for line in self.lines(part):
            self.producer.produce(self.topic, line.encode(), partition=part % 5)
        assert self.producer.flush(TIMEOUT_S) == 0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("standalone", tmp_path_factory.mktemp("standalone")) as server:
        yield server


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaServer]:
    with KafkaServer.running() as kafka:
        yield kafka


@pytest.fixture
async def client(server: Server) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server.service_url) as client:
        yield client


@pytest.fixture
async def http(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.web_url, timeout=60) as http:
        yield http


@pytest.mark.parametrize("seed", range(1, 1 + SEEDS))
@pytest.mark.parametrize("kind", [Files, Numbers, Partitions, Rows, Objects], ids=lambda kind: kind.kind)
async def test_source_loses_nothing_while_it_is_scaled(
    http: httpx.AsyncClient, client: AsyncClient, topic: str, tmp_path: Path, request: pytest.FixtureRequest,
    kind: type[Load], seed: int,
) -> None:  # fmt: skip
    """Every value comes. One comes twice only where an instance had not kept that it was read."""
    rng = random.Random(seed)
    more = (request.getfixturevalue("kafka"),) if kind is Partitions else ()
    load = kind(tmp_path, seed, *more)
    scaled = Scaled(http, client, topic, f"{load.kind}-{seed}")
    fixed = {"topicName": topic, "sourceType": load.kind, "parallelism": 1}
    await scaled.send("POST", fixed | {"runtimeEnv": rng.choice(["thread", "process"])} | load.config())
    await scaled.subscribe()
    async with asyncio.TaskGroup() as work:
        writing = work.create_task(load.run())
        for _ in range(STEPS):
            await scaled.receive(rng.randint(0, PARTS * LINES // STEPS), 3.0)
            if rng.random() < 0.3:
                await scaled.restart()
                continue
            count = rng.randint(1, 4)
            answer = await scaled.ask("PUT", {"parallelism": count})
            if count > 1 and not load.is_parallel:
                assert answer.status_code == 400, answer.text
                assert "parallelism must be 1" in answer.text
            elif answer.status_code != 204:
                assert "no change" in answer.text
            elif rng.random() < 0.5:
                await scaled.running(count)
        await writing
    twice = await scaled.receive_all(load.expected, 180)
    print(f"{load.kind}, seed {seed}: {twice} of {len(load.expected)} values came twice")
    assert twice < len(load.expected) / 2
    assert (await http.delete(scaled.path)).status_code == 204
