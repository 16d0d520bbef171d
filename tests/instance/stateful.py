"""A function with state, with its topics and table: the word count of Pulsar's documentation."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from magnetar.client.client import AsyncClient
from magnetar.instance.spec import InstanceSpec
from magnetar.runtime.interface import Instance, Runtime
from magnetar.state.client import TableClient
from magnetar.wire.functions_pb2 import FunctionStatus

from tests.support.eventually import until
from tests.support.function_topics import backlog_of, no_backlog, receive, send_batches
from tests.support.instances import MakeSpec
from tests.support.servers import Server

WORD_COUNT = """
from pulsar import Function


class WordCountFunction(Function):
    def process(self, input, context):
        for word in input.split():
            context.incr_counter(word, 1)
"""
CLASS_NAME = "user_code.WordCountFunction"


def counters(tables: TableClient, function: str, keys: list[str]) -> dict[str, int | None]:
    values = tables.read(function, [key.encode() for key in keys])
    return {key: None if value is None else value.number for key, value in zip(keys, values, strict=True)}


def random_texts(rng: random.Random, count: int) -> list[bytes]:
    words = [f"w{number}" for number in range(300)]
    return [" ".join(rng.choices(words, k=rng.randrange(12))).encode() for _ in range(count)]


def recount(texts: list[bytes]) -> dict[str, int]:
    return dict(Counter(word for text in texts for word in text.decode().split()))


async def has_error(instance: Instance, text: str) -> FunctionStatus | None:
    """Return the status if it contains an error with a string, else None."""
    status = await instance.status()
    return status if text in status.failureException else None


@dataclass
class Stateful:
    """A function with state, and its input and output topic.

    Attributes:
        tables: client of the state store.
        instances: started instances, which the fixture stops.
    """

    client: AsyncClient
    server: Server
    tables: TableClient
    make_spec: MakeSpec
    runtime: Runtime
    state_url: str
    topic: str
    name: str = field(default_factory=lambda: f"f-{uuid.uuid4().hex[:8]}")
    instances: list[Instance] = field(default_factory=list)

    @property
    def function(self) -> str:
        """Name of the function, as used for subscription and table."""
        return f"public/default/{self.name}"

    def spec(
        self, code: str, class_name: str = "user_code.process", instance_id: int = 0, **details: object
    ) -> InstanceSpec:
        return replace(
            self.make_spec(code, class_name, instance_id, **({"name": self.name} | details)), state_url=self.state_url
        )

    async def start(self, spec: InstanceSpec) -> Instance:
        """Start an instance, and wait until it is running."""
        instance = await self.runtime.start(spec)
        self.instances.append(instance)

        async def is_running() -> bool:
            status = await instance.status()
            assert status.running or not status.failureException, status.failureException
            return status.running

        await until(is_running)
        return instance

    async def send(self, batches: Sequence[Sequence[bytes]]) -> None:
        await send_batches(self.client, f"{self.topic}-in", batches)

    async def receive(self, count: int) -> list[bytes]:
        return [message.data for message in await receive(self.client, f"{self.topic}-out", count)]

    async def backlog(self) -> int:
        """Return the number of unacknowledged entries."""
        return await backlog_of(self.server, f"{self.topic}-in", self.function)

    async def all_acknowledged(self) -> None:
        await no_backlog(self.server, f"{self.topic}-in", self.function)

    async def connect(self) -> None:
        """Make an instance connect to the state store."""
        await self.send([[b"first"]])
        await self.all_acknowledged()

    def counters(self, keys: list[str]) -> dict[str, int | None]:
        return counters(self.tables, self.function, keys)
