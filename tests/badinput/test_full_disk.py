"""A disk that takes no more: publishing fails with a clear error, reading goes on, nothing receipted is lost.

The kernel's file size limit stands for the full disk, because it can be set on a running process without being
root: every write beyond it fails, as ENOSPC would let it fail.
"""

from __future__ import annotations

import resource
from pathlib import Path

import pulsar
import pytest

from tests.support.servers import Server, running
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow

TOPIC = "persistent://public/default/full"
PAYLOAD_BYTES = 100_000
UNLIMITED = resource.RLIM_INFINITY


def test_full_disk_fails_publishing_clearly_and_loses_nothing(tmp_path: Path) -> None:
    with running("broker", tmp_path) as server:
        client = pulsar.Client(server.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        try:
            receipted = fill_until_it_fails(server, client)
            assert receipted, "nothing fitted"
            wait_for(lambda: says_why(server), "line in the log that names the failed write")
            reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
            assert [reader.read_next(5000).data()[:8] for _ in receipted] == receipted
        finally:
            client.close()
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (UNLIMITED, UNLIMITED))
        server.stop()
        server.start()
        check_after_restart(server, receipted)


def fill_until_it_fails(server: Server, client: pulsar.Client) -> list[bytes]:
    """Publish until a write fails; return the first bytes of everything receipted."""
    client.subscribe(TOPIC, "keep").close()
    producer = client.create_producer(TOPIC, send_timeout_millis=3000)
    producer.send(b"%08d" % 0 + bytes(PAYLOAD_BYTES))
    receipted = [b"%08d" % 0]
    # The log of the process is a file as well: it keeps some room.
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (4_000_000, UNLIMITED))
    for number in range(1, 2000):
        try:
            producer.send(b"%08d" % number + bytes(PAYLOAD_BYTES))
        except pulsar.PulsarException:
            return receipted
        receipted.append(b"%08d" % number)
    raise AssertionError("200 MB fitted below a limit of 4 MB a file")


def says_why(server: Server) -> bool:
    return any("File too large" in line or "Errno 27" in line for line in server.log_file.read_text().splitlines())


def check_after_restart(server: Server, receipted: list[bytes]) -> None:
    client = pulsar.Client(server.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
        found = []
        while reader.has_message_available():
            found.append(reader.read_next(5000).data()[:8])
        # What was sent without a receipt may be there or not, but only behind what was receipted.
        assert list(dict.fromkeys(found))[: len(receipted)] == receipted
        client.create_producer(TOPIC).send(b"and on it goes")
    finally:
        client.close()
