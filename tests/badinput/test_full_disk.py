"""A disk that takes no more: publishing fails with a clear error, reading goes on, nothing receipted is lost.

The kernel's file size limit stands for the full disk, because it can be set on a running process without being
root: every write beyond it fails, as ENOSPC would let it fail. It is smaller than one message here, so that not even a
new file has room.
"""

from __future__ import annotations

import resource
from pathlib import Path

import pulsar
import pytest
from magnetar.client.client import AsyncClient
from magnetar.client.config import ProducerConfig
from magnetar.errors import OperationTimeout
from magnetar.wire.message_id import EARLIEST

from tests.support.servers import Server, running
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow

TOPIC = "persistent://public/default/full"
PAYLOAD_BYTES = 2_000_000
FILE_BYTES = 1_000_000  # the log of the process is a file as well, and keeps this room
FITTING = 5
UNLIMITED = resource.RLIM_INFINITY


async def test_full_disk_fails_publishing_clearly_and_loses_nothing(tmp_path: Path) -> None:
    with running("broker", tmp_path) as server:
        receipted = [await publish(server, number) for number in range(FITTING)]
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (FILE_BYTES, UNLIMITED))
        with pytest.raises(OperationTimeout, match="File too large"):
            await publish(server, FITTING)
        wait_for(lambda: says_why(server), "line in the log that names the failed write")
        check_official_client_fails_too(server)
        assert (await read_available(server))[:FITTING] == receipted, "reading goes on"
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (UNLIMITED, UNLIMITED))
        wait_for(lambda: "storage recovered" in server.log_file.read_text(), "recovery without a restart")
        await publish(server, FITTING + 1)
        server.kill()
        server.restart()
        # What was sent without a receipt may be there or not, but only behind what was receipted.
        numbers = list(dict.fromkeys(await read_available(server)))
        assert numbers[:FITTING] == receipted
        assert numbers[-1] == FITTING + 1


async def publish(server: Server, number: int) -> int:
    """Publish one message and return its number once it is receipted."""
    async with AsyncClient(server.service_url) as client:
        await (await client.subscribe(TOPIC, "keep")).close()
        producer = await client.create_producer(TOPIC, ProducerConfig(send_timeout_ms=2000))
        await producer.send(b"%08d" % number + bytes(PAYLOAD_BYTES))
    return number


async def read_available(server: Server) -> list[int]:
    """The numbers of everything stored."""
    async with AsyncClient(server.service_url) as client:
        reader = await client.create_reader(TOPIC, EARLIEST)
        found = []
        while await reader.has_message_available():
            found.append(int((await reader.read_next(30)).data[:8]))
        return found


def check_official_client_fails_too(server: Server) -> None:
    """It gives up after its own time; a broker that let it reconnect at once would keep it busy for ever."""
    log = pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
    client = pulsar.Client(server.service_url, logger=log, operation_timeout_seconds=3)
    try:
        with pytest.raises((pulsar.Timeout, pulsar.BrokerPersistenceError)):
            client.create_producer(TOPIC, send_timeout_millis=2000).send(bytes(PAYLOAD_BYTES))
    finally:
        client.close()


def says_why(server: Server) -> bool:
    return any("File too large" in line or "Errno 27" in line for line in server.log_file.read_text().splitlines())
