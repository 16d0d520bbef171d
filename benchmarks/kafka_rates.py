"""Throughput of the Kafka source, compared with a plain loop on the same library's consumer.

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
EXPECTED_RATE = 250_000  # only used to determine the number of records
SHARE = 0.6  # target share of the plain loop's rate
FETCHING = {"fetch.queue.backoff.ms": "10", "queued.max.messages.kbytes": "32768"}
"""Consumer settings of the source that a typical user's loop does not set."""
TIMEOUT_S = 120.0


def measure_kafka(plan: Plan) -> Iterator[Figure]:
    """Measure the rate of the Kafka source, and its share of the rate of a plain loop."""
    if not maven.is_there():
        raise RuntimeError("java or mvn is missing: apt-get install openjdk-17-jre-headless maven")
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
    """Publish records to a topic."""
    from confluent_kafka import Producer  # other benchmarks do not need it

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
        raise TimeoutError(f"{left} records were not stored by Kafka within {TIMEOUT_S} s")


def loop(kafka: KafkaServer, topic: str, count: int, settings: dict[str, str]) -> float:
    """Return records per second of a plain loop in a separate process."""
    command = [sys.executable, "-m", "benchmarks.kafka_loop", kafka.bootstrap_servers, topic, str(count)]
    command += [f"{name}={value}" for name, value in settings.items()]
    done = subprocess.run(
        command, cwd=Path(__file__).parent.parent, check=True, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    return float(done.stdout)


def source(server: Server, kafka: KafkaServer, topic: str, count: int, repeat: int) -> Slope:
    """Return the rate of a source that reads the topic from the start."""
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
