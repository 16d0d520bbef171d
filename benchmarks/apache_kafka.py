"""An Apache Kafka node for benchmarks, run by a starter program, and Python clients for its topics."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import psutil

from tests.support.pulsar import free_ports
from tests.support.servers import LOG_TAIL_BYTES, ServerFailed, descendants, survivors
from tests.support.waiting import wait_for

from .real_input import Message

STARTER = "MAGNETAR_BENCH_KAFKA"
START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 30.0
ADMIN_TIMEOUT_S = 30.0
FLUSH_TIMEOUT_S = 120.0
BATCH_BYTES = 1024 * 1024
"""Maximum batch size, large enough that the number of messages limits batches."""
HEAP = "1g"


class ApacheKafka:
    """An Apache Kafka node, running from `start` to `stop`.

    Attributes:
        bootstrap_servers: bootstrap servers for clients.
    """

    def __init__(self, starter: str, directory: Path) -> None:
        self.bootstrap_servers = ""
        self._starter = starter
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the node on free ports, and wait until it is ready.

        Raises:
            ServerFailed: it did not start; the message contains the starter's output.
        """
        port, controller = free_ports(2)
        ready = self._directory / "ready.json"
        command = [
            self._starter, "run", "--data", str(self._directory / "data"), "--ready", str(ready),
            "--port", port, "--controller-port", controller, "--heap", HEAP,
        ]  # fmt: skip
        guarded = command
        if setpriv := shutil.which("setpriv"):  # ensures that it is stopped when this process ends
            guarded = [setpriv, "--pdeathsig", "TERM", *command]
        log = self._directory / "starter.log"
        with log.open("wb") as file:
            self._process = process = subprocess.Popen(guarded, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        try:
            wait_for(lambda: ready.exists() or process.poll() is not None, f"ready file of {command}", START_TIMEOUT_S)
            if process.poll() is not None:
                raise AssertionError(f"{' '.join(command)} exited with code {process.returncode}")
            self.bootstrap_servers = str(
                wait_for(lambda: json.loads(ready.read_text()), "ready file")["bootstrapServers"]
            )
        except AssertionError as error:
            tail = log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
            raise ServerFailed(f"{error}:\n{tail}") from error

    def stop(self) -> None:
        """Stop the node: SIGTERM, then SIGKILL for processes still running after half a minute."""
        process = self._process
        if process is None:
            return
        below = descendants(process.pid)
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_TIMEOUT_S)
        for one in survivors(below, 2):
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic with unlimited retention, so that messages with old timestamps are kept."""
        from confluent_kafka.admin import AdminClient, NewTopic

        new = NewTopic(name, partitions, 1, config={"retention.ms": "-1"})
        client = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        client.create_topics([new], operation_timeout=ADMIN_TIMEOUT_S)[name].result(ADMIN_TIMEOUT_S)

    def fill(self, topic: str, partition: int, messages: Iterable[Message], batch: int) -> None:
        """Publish messages to a partition in batches of `batch`, like `real_input` does to our topics.

        Raises:
            TimeoutError: the messages were not stored in time.
        """
        from confluent_kafka import Producer

        failures: list[object] = []

        def told(error: object, _message: object) -> None:
            if error is not None:
                failures.append(error)

        settings = producer_settings(self.bootstrap_servers, batch, linger_ms=1000)
        producer = Producer(settings)
        for message in messages:
            while True:
                try:
                    producer.produce(
                        topic,
                        message.payload,
                        key=message.key,
                        partition=partition,
                        headers=list((message.properties or {}).items()),
                        on_delivery=told,
                        **({} if message.event_time_ms is None else {"timestamp": message.event_time_ms}),
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        if left := producer.flush(FLUSH_TIMEOUT_S):
            raise TimeoutError(f"{left} messages were not stored by Kafka within {FLUSH_TIMEOUT_S:g} s")
        if failures:
            raise RuntimeError(f"Kafka failed to store {len(failures)} messages: {failures[0]}")


def producer_settings(bootstrap_servers: str, batch: int, linger_ms: int) -> dict[str, str | int]:
    """Return the settings of a producer that sends a batch when it has `batch` messages or is `linger_ms` old."""
    return {
        "bootstrap.servers": bootstrap_servers,
        "batch.num.messages": batch,
        "batch.size": BATCH_BYTES,
        "linger.ms": linger_ms,
        "queue.buffering.max.messages": 500_000,
        "log_level": 0,
    }


def what_is_wrong(environment: Mapping[str, str]) -> str | None:
    """Return in one line why Kafka cannot be started, or None if it can; no side effects."""
    starter = environment.get(STARTER, "")
    if not starter:
        return f"no Apache Kafka: set {STARTER} to a program that starts one (make bench-kafka KAFKA=<starter>)"
    if shutil.which(starter) is None:
        return f"{STARTER}: {starter} is not an executable program: expected one that starts an Apache Kafka"
    return None


@contextlib.contextmanager
def running(directory: Path) -> Iterator[ApacheKafka]:
    """Provide an Apache Kafka run by the starter in the environment, and stop it at the end of the context."""
    kafka = ApacheKafka(os.environ[STARTER], directory)
    try:
        kafka.start()
        yield kafka
    finally:
        kafka.stop()
