"""The example of Kafka, by the commands of its README: every odd payment is in the topic of alerts, across a kill."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import magnetar
import pytest

from tests.connectors.servers.kafka import TIMEOUT_S, KafkaServer
from tests.support.command import call
from tests.support.servers import running
from tests.support.waiting import wait_for

confluent_kafka = pytest.importorskip("confluent_kafka")
pytestmark = [pytest.mark.connectors, pytest.mark.timeout(480)]

EXAMPLE = Path(magnetar.__file__).parent / "examples" / "pipelines" / "kafka_to_kafka"
PAYMENTS = 10_000


def commands(servers: str) -> list[list[str]]:
    """Return the commands of `magnetar` in the README, for another Kafka than the one that it has."""
    text = (EXAMPLE / "README.md").read_text().replace("\\\n", " ").replace("localhost:9092", servers)
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    lines = [shlex.split(line) for block in blocks for line in block.splitlines()]
    return [line for line in lines if line[0] == "magnetar"]


def alerts(kafka: KafkaServer) -> dict[int, set[tuple[str, int]]]:
    """Return accounts and partitions of the alerts, by payment."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "test"})
    places = [confluent_kafka.TopicPartition("alerts", number, 0) for number in range(3)]
    missing = sum(consumer.get_watermark_offsets(place, timeout=TIMEOUT_S)[1] for place in places)
    consumer.assign(places)
    found: dict[int, set[tuple[str, int]]] = {}
    while missing:
        for message in consumer.consume(missing, TIMEOUT_S):
            missing -= 1
            alert = json.loads(message.value())
            found.setdefault(alert["payment"], set()).add((message.key().decode(), message.partition()))
    consumer.close()
    return found


def test_every_odd_payment_is_in_the_topic_of_alerts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLE)
    with KafkaServer.running() as kafka, running("standalone", tmp_path / "server") as server:
        for topic in ("payments", "alerts"):
            kafka.create_named(topic, 3)
        lines = commands(kafka.bootstrap_servers)
        for program, *arguments in lines[:3]:
            assert program == "magnetar"
            call(*arguments, admin_url=server.web_url, service_url=server.service_url).ok()

        def pay() -> None:
            pay = [sys.executable, "pay.py", kafka.bootstrap_servers, str(PAYMENTS)]
            done = subprocess.run(pay, capture_output=True, text=True, timeout=120, check=False)
            assert (done.returncode, done.stdout) == (0, f"sent {PAYMENTS} payments\n"), done.stderr

        pay()
        expected = {number for number in range(PAYMENTS) if number * 37 % 1000 > 900}
        wait_for(lambda: bool(alerts(kafka)), "an alert")
        kafka.kill()
        kafka.start()
        wait_for(lambda: set(alerts(kafka)) == expected, "all alerts")
        found = alerts(kafka)
        assert {account for places in found.values() for account, _ in places} <= {f"account-{n}" for n in range(50)}
        partitions: dict[str, set[int]] = {}
        for number, places in found.items():
            assert {account for account, _ in places} == {f"account-{number % 50}"}
            for account, partition in places:
                partitions.setdefault(account, set()).add(partition)
        assert all(len(numbers) == 1 for numbers in partitions.values()), partitions
        for _, *arguments in lines[3:]:
            shown = call(*arguments, admin_url=server.web_url, service_url=server.service_url).ok().json()
            assert shown["numRunning"] == shown["numInstances"]
