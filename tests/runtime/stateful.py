"""What tests of functions with state share: the word count of Pulsar's documentation, and looking into its table."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable

from magnetar.instance.spec import InstanceSpec
from magnetar.runtime.interface import Instance
from magnetar.state.client import TableClient
from magnetar.wire.functions_pb2 import FunctionStatus

WORD_COUNT = """
from pulsar import Function


class WordCountFunction(Function):
    def process(self, input, context):
        for word in input.split():
            context.incr_counter(word, 1)
"""
CLASS_NAME = "user_code.WordCountFunction"


StatefulSpec = Callable[..., InstanceSpec]
Start = Callable[[InstanceSpec], Awaitable[Instance]]


def counters(tables: TableClient, spec: InstanceSpec, keys: list[str]) -> dict[str, int | None]:
    values = tables.read(spec.function_name, [key.encode() for key in keys])
    return {key: None if value is None else value.number for key, value in zip(keys, values, strict=True)}


def random_texts(rng: random.Random, count: int) -> list[bytes]:
    words = [f"w{number}" for number in range(300)]
    return [" ".join(rng.choices(words, k=rng.randrange(12))).encode() for _ in range(count)]


def recount(texts: list[bytes]) -> dict[str, int]:
    return dict(Counter(word for text in texts for word in text.decode().split()))


async def has_error(instance: Instance, text: str) -> FunctionStatus | None:
    """Return the status if it shows an error with a text."""
    status = await instance.status()
    return status if text in status.failureException else None
