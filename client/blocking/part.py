"""Base class of the blocking client's producers, consumers and readers."""

from __future__ import annotations

from typing import Any, Generic, Self, TypeVar

from ..consumers.consumer import Consumer as AsyncConsumer
from ..consumers.merged import MergedConsumer
from ..consumers.reader import Reader as AsyncReader
from ..producers.partitioned import PartitionedProducer
from ..producers.producer import Producer as AsyncProducer
from ..typed.consumer import TypedConsumer, TypedReader
from .loop_thread import LoopThread

_A = TypeVar(
    "_A",
    bound=AsyncProducer
    | PartitionedProducer
    | AsyncConsumer
    | MergedConsumer
    | AsyncReader
    | TypedConsumer[Any]
    | TypedReader[Any],
)


class Part(Generic[_A]):
    """A blocking producer, consumer or reader; wraps an asyncio one that runs on the client's thread."""

    def __init__(self, thread: LoopThread, inner: _A):
        self._thread = thread
        self._inner = inner

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def topic(self) -> str:
        """Full name of the topic; several names are separated by commas."""
        return self._inner.topic

    @property
    def is_connected(self) -> bool:
        """Whether it is currently connected to a broker."""
        return self._inner.is_connected

    def close(self) -> None:
        """Close the object. A consumer first sends pending acknowledgements; a reader's subscription is deleted."""
        self._thread.call(self._inner.close())
