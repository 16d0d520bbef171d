"""Throughput of the Kafka source, compared with a bare loop around the same library's consumer.

The records are in a topic with one partition before either starts. Both rates are slopes between 10 % and 95 % of the
records; the source's is the slope of the output topic's `msgInCounter`, so it includes publishing and storing.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx

from tests.connectors.servers import maven
from tests.connectors.servers.kafka import KafkaServer
from tests.support.servers import Server

from .figure import Figure
from .function_rates import Counter, Slope
from .load import hold, payloads_of
from .plan import Plan

SIZE_BYTES = 100
EXPECTED_RATE = 250_000  # only to choose how many records a measurement needs
SHARE = 0.6  # promised of the bare loop
FETCHING = {"fetch.queue.backoff.ms": "10", "queued.max.messages.kbytes": "32768"}
"""Consumer settings of the source, which a typical user's loop does not have."""
TIMEOUT_S = 120.0


def measure_kafka(plan: Plan) -> Iterator[Figure]:
    """The rate of the Kafka source, and its share of that of a bare loop."""
    if not maven.is_there():
        raise RuntimeError("no java or no mvn on this machine: apt-get install openjdk-17-jre-headless maven")
    count = int(EXPECTED_RATE * plan.seconds)
    with KafkaServer.running() as kafka:
        topic = kafka.create_topic()
        fill(kafka, topic, payloads_of(SIZE_BYTES, count))
        bare = statistics.median(loop(kafka, topic, count, {}) for _ in range(plan.repeats))
        tuned = statistics.median(loop(kafka, topic, count, FETCHING) for _ in range(plan.repeats))
        with plan.server("standalone") as server:
            slopes = [source(server, kafka, topic, count, repeat) for repeat in range(plan.repeats)]
    ours = sorted(slopes, key=lambda slope: slope.rate)[len(slopes) // 2]
    settings = " ".join(f"{name}={value}" for name, value in FETCHING.items())
    yield Figure(
        name="Kafka source",
        ours=ours.rate,
        unit="records/s",
        peer=bare,
        peer_name="bare loop of the same library",
        note=f"{ours.note}; the loop with {settings}: {tuned:,.0f}",
    )
    yield Figure(name="Kafka source over the bare loop", ours=ours.rate / bare, unit="times", target=SHARE)


def fill(kafka: KafkaServer, topic: str, payloads: list[bytes]) -> None:
    """Put records into a topic."""
    from confluent_kafka import Producer  # the other benchmarks do without it

    producer = Producer({
        "bootstrap.servers": kafka.bootstrap_servers,
        "linger.ms": 20,
        "queue.buffering.max.messages": 0,
        "log_level": 0,
    })  # fmt: skip
    for payload in payloads:
        producer.produce(topic, payload)
    left = producer.flush(TIMEOUT_S)
    if left:
        raise TimeoutError(f"{left} records are not in Kafka after {TIMEOUT_S} s")


def loop(kafka: KafkaServer, topic: str, count: int, settings: dict[str, str]) -> float:
    """Return the records per second of a bare loop, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.kafka_loop", kafka.bootstrap_servers, topic, str(count)]
    command += [f"{name}={value}" for name, value in settings.items()]
    done = subprocess.run(
        command, cwd=Path(__file__).parent.parent, check=True, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    return float(done.stdout)


def source(server: Server, kafka: KafkaServer, topic: str, count: int, repeat: int) -> Slope:
    """Return the slope of a source that reads the topic from its beginning."""
    name, output = f"kafka{repeat}", f"from-kafka{repeat}"
    hold(server.service_url, output, "keep")
    config = {
        "tenant": "public",
        "namespace": "default",
        "name": name,
        "archive": "builtin://kafka",
        "topicName": output,
        "runtimeEnv": "process",
        "configs": {"bootstrapServers": kafka.bootstrap_servers, "topic": topic, "groupId": f"bench-{repeat}"},
    }
    url = f"{server.web_url}/admin/v3/sources/public/default/{name}"
    part = {"sourceConfig": (None, json.dumps(config), "application/json")}
    httpx.post(url, files=part, timeout=TIMEOUT_S).raise_for_status()
    with Counter(server.web_url, output) as counter:
        slope = counter.slope(count, server, name)
    httpx.delete(url, timeout=TIMEOUT_S).raise_for_status()
    return slope
