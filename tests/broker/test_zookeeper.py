"""A broker whose metadata is in ZooKeeper, while that dies, comes back, and is changed by others."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from kazoo.client import KazooClient
from magnetar import AsyncClient
from magnetar.broker.errors import error_code
from magnetar.client.config import ClientConfig
from magnetar.client.consumers.consumer import Consumer
from magnetar.client.producers.producer import Producer
from magnetar.errors import MetadataError, MetadataUnavailable

from tests.support.calm import Calm
from tests.support.command import call
from tests.support.eventually import eventually
from tests.support.servers import Server, running
from tests.support.zookeeper import Zookeeper, running_zookeeper

pytestmark = pytest.mark.slow

OPEN = "persistent://public/default/open"
ADMIN = "/admin/v2"
SILENCE_S = 4  # that long a request waits for ZooKeeper: enough for a busy machine while it does answer
PORTS = ("--broker-port", "0", "--web-port", "0")


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[Zookeeper]:
    with running_zookeeper(tmp_path / "zookeeper") as server:
        yield server


def config_file(directory: Path, url: str, timeout_s: float = 10) -> str:
    file = directory / "broker.yml"
    file.write_text(f"metadataStoreUrl: {url}\nmetadataStoreOperationTimeoutSeconds: {timeout_s}\n")
    return str(file)


@pytest.fixture
def broker(tmp_path: Path, zookeeper: Zookeeper) -> Iterator[Server]:
    config = config_file(tmp_path, f"zk:{zookeeper.servers}/magnetar/one", timeout_s=60)
    with running("broker", tmp_path, "--config", config) as server:
        yield server


class Traffic:
    """A message every few milliseconds, each received and acknowledged, in order, until stopped."""

    def __init__(self, producer: Producer, consumer: Consumer) -> None:
        self.slowest_s = 0.0
        self.count = 0
        self._producer = producer
        self._consumer = consumer
        self._is_over = False
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while not self._is_over:
            began = Calm()
            await self._producer.send(b"%d" % self.count)
            message = await self._consumer.receive(timeout_s=30)
            assert message.data == b"%d" % self.count
            self._consumer.ack(message)
            self.slowest_s = max(self.slowest_s, began.calm_s)
            self.count += 1
            await asyncio.sleep(0.005)

    async def flows(self, more: int = 20) -> None:
        """Return once so many more messages came through."""
        target = self.count + more

        async def is_reached() -> bool:
            if self._task.done():
                self._task.result()
            return self.count >= target

        await eventually(is_reached, f"{more} more messages")

    async def stop(self) -> None:
        self._is_over = True
        await self._task


async def test_a_killed_zookeeper_interrupts_no_open_topic_and_what_waited_goes_on_when_it_is_back(
    zookeeper: Zookeeper, broker: Server
) -> None:
    async with (
        AsyncClient(broker.service_url) as client,
        httpx.AsyncClient(base_url=broker.web_url + ADMIN, timeout=60) as rest,
    ):
        producer = await client.create_producer(OPEN)
        consumer = await client.subscribe(OPEN, "s")
        assert isinstance(producer, Producer)
        assert isinstance(consumer, Consumer)
        traffic = Traffic(producer, consumer)
        await traffic.flows()
        zookeeper.kill()
        waiting = asyncio.create_task(
            rest.put("/tenants/patient", json={"allowedClusters": ["standalone"]}, timeout=60)
        )
        opening = asyncio.create_task(client.create_producer("persistent://public/default/unopened"))
        await traffic.flows(100)
        # Names are read from memory, and an open topic takes new clients.
        assert "public/default" in (await rest.get("/namespaces/public")).json()
        await (await client.subscribe(OPEN, "joined-meanwhile")).close()
        assert not waiting.done()
        assert not opening.done()
        await asyncio.to_thread(zookeeper.start)
        assert (await waiting).status_code == 204
        await (await opening).send(b"works")
        await traffic.flows()
        await traffic.stop()
        assert traffic.slowest_s < 2
    log = broker.log_file.read_text()
    # A machine that is very busy may lose the connection once more.
    assert 1 <= log.count("lost connection to ZooKeeper") <= 3
    assert log.count("reconnected to ZooKeeper") == log.count("lost connection to ZooKeeper")
    assert "Traceback" not in log


@pytest.fixture
def impatient_broker(tmp_path: Path, zookeeper: Zookeeper) -> Iterator[Server]:
    config = config_file(tmp_path, f"zk:{zookeeper.servers}/magnetar", timeout_s=SILENCE_S)
    with running("broker", tmp_path, "--config", config) as server:
        yield server


async def test_what_needs_a_silent_zookeeper_fails_in_time_and_says_why(
    zookeeper: Zookeeper, impatient_broker: Server
) -> None:
    broker = impatient_broker
    async with (
        AsyncClient(broker.service_url, ClientConfig(operation_timeout_s=3 * SILENCE_S)) as client,
        httpx.AsyncClient(base_url=broker.web_url + ADMIN, timeout=60) as rest,
    ):
        producer = await client.create_producer(OPEN)
        zookeeper.freeze()
        refused, failed, _ = await asyncio.gather(
            rest.put("/tenants/absent", json={"allowedClusters": ["standalone"]}),
            client.create_producer("persistent://public/default/unopened"),
            producer.send(b"goes through"),
            return_exceptions=True,
        )
        zookeeper.thaw()
        assert isinstance(refused, httpx.Response)
        assert refused.status_code == 503
        assert f"ZooKeeper {zookeeper.servers}" in refused.json()["reason"]
        assert isinstance(failed, MetadataError), failed
        assert str(failed).endswith(("; retry", ": reread the record"))

        async def is_created() -> bool:
            answer = await rest.put("/tenants/present", json={"allowedClusters": ["standalone"]})
            return answer.status_code in (204, 409)

        await eventually(is_created, "success once it answers again")


async def test_names_and_topics_are_there_after_a_restart_of_both(zookeeper: Zookeeper, broker: Server) -> None:
    async def create() -> None:
        async with httpx.AsyncClient(base_url=broker.web_url + ADMIN, timeout=60) as rest:
            for path, body in (
                ("/tenants/t", {"allowedClusters": ["standalone"]}),
                ("/namespaces/t/n", None),
                ("/persistent/t/n/parts/partitions", 3),
            ):
                (await rest.put(path, json=body)).raise_for_status()
            retention = {"retentionTimeInMinutes": 7, "retentionSizeInMB": 7}
            (await rest.post("/namespaces/t/n/retention", json=retention)).raise_for_status()
        async with AsyncClient(broker.service_url) as client:
            await client.subscribe("persistent://t/n/plain", "s")
            await (await client.create_producer("persistent://t/n/plain")).send(b"kept")

    await create()
    broker.kill()
    zookeeper.kill()
    await asyncio.to_thread(zookeeper.start)
    await asyncio.to_thread(broker.restart)
    async with httpx.AsyncClient(base_url=broker.web_url + ADMIN, timeout=60) as rest:
        assert (await rest.get("/namespaces/t")).json() == ["t/n"]
        assert (await rest.get("/namespaces/t/n/retention")).json()["retentionTimeInMinutes"] == 7
        assert (await rest.get("/persistent/t/n/parts/partitions")).json()["partitions"] == 3
        configuration = (await rest.get("/brokers/internal-configuration")).json()
        assert configuration["metadataStoreUrl"] == f"zk:{zookeeper.servers}/magnetar/one"
    async with AsyncClient(broker.service_url) as client:
        consumer = await client.subscribe("persistent://t/n/plain", "s")
        assert isinstance(consumer, Consumer)
        assert (await consumer.receive(timeout_s=30)).data == b"kept"
    assert not (broker.directory / "data" / "metadata.sqlite").exists()


async def test_a_change_by_somebody_else_is_obeyed(zookeeper: Zookeeper, broker: Server) -> None:
    other = KazooClient(f"{zookeeper.servers}/magnetar/one/admin")
    await asyncio.to_thread(other.start, 60)
    try:
        async with httpx.AsyncClient(base_url=broker.web_url + ADMIN, timeout=60) as rest:
            policies, _ = other.get("/policies/public/default")
            other.create("/policies/public/theirs", policies)
            other.create("/partitioned-topics/public/default/persistent/theirs", b'{"partitions":5}', makepath=True)

            async def is_seen() -> bool:
                partitions = (await rest.get("/persistent/public/default/theirs/partitions")).json().get("partitions")
                return "public/theirs" in (await rest.get("/namespaces/public")).json() and partitions == 5

            await eventually(is_seen, "the broker sees both")
            other.set("/policies/public/theirs", b"no JSON")  # a mistake of theirs changes nothing, and is logged
            other.delete("/partitioned-topics/public/default/persistent/theirs")

            async def is_gone() -> bool:
                is_logged = "/admin/policies/public/theirs is not valid JSON" in broker.log_file.read_text()
                answer = await rest.get("/persistent/public/default/theirs/partitions")
                return is_logged and not answer.json().get("partitions")

            await eventually(is_gone, "the broker sees the deletion and the mistake")
            assert "public/theirs" in (await rest.get("/namespaces/public")).json()
    finally:
        other.stop()
        other.close()


def test_a_broker_without_its_zookeeper_is_refused_in_time(tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # held, but not listened on
        servers = f"127.0.0.1:{nobody.getsockname()[1]}"
        config = config_file(tmp_path, f"zk:{servers}/m", timeout_s=1)
        answer = call("broker", "--data-dir", str(tmp_path / "data"), "--config", config, *PORTS)
    answer.refused(f"no ZooKeeper server responded at {servers} within 1 s", "correct metadataStoreUrl")


def test_a_malformed_url_is_refused_by_its_key(tmp_path: Path) -> None:
    config = config_file(tmp_path, "zk://localhost/m")
    answer = call("broker", "--data-dir", str(tmp_path / "data"), "--config", config, *PORTS)
    answer.refused("metadataStoreUrl 'zk://localhost/m'", "zk:host:2181")


def test_a_store_that_is_away_is_a_metadata_error_of_the_protocol() -> None:
    code, text = error_code(MetadataUnavailable("ZooKeeper h:1: no answer"))
    assert code == MetadataError.code
    assert not MetadataError.is_final
    assert "no answer" in text
