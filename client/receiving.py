"""Base classes of objects that can be closed or receive messages: `async with`, `async for`, listeners.

A listener is called with one message at a time. Its exceptions are logged, and the message is neither acknowledged nor
negatively acknowledged, so it is redelivered after the ack timeout or to the next consumer. Up to `LISTENER_BATCH`
messages may be waiting for a listener, even after the subscription was moved.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Self, TypeVar

from ..errors import ClosedError, InvalidConfig, MagnetarError

log = logging.getLogger(__name__)

M = TypeVar("M")

LISTENER_BATCH = 100
"""Maximum number of messages fetched for a listener in one batch."""

Deliver = Callable[[Sequence[M]], Awaitable[int]]
"""Calls the listener with each message; returns the number of calls, which is lower if the listener is paused."""


class Closing(ABC):
    """Base class of objects that are closed by `async with`."""

    @abstractmethod
    async def close(self) -> None:
        """Close the object."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class Receiving(Closing, Generic[M]):
    """Base class of objects that receive messages; `async for` receives until the object is closed."""

    _listening: Listening[M] | None = None

    @abstractmethod
    def poll(self) -> M | None:
        """Return the next message if one is queued."""

    @abstractmethod
    async def receive(self, timeout_s: float | None = None, *, timeout_millis: float | None = None) -> M:
        """Return the next message, waiting for it."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> M:
        try:
            return await self.receive()
        except ClosedError:
            raise StopAsyncIteration from None

    @property
    def has_listener(self) -> bool:
        """Whether messages are passed to a listener."""
        return self._listening is not None

    def listen(self, deliver: Deliver[M]) -> Listening[M]:
        """Start passing all messages to a listener (called by the client)."""
        self._listening = Listening(self, deliver)
        return self._listening

    def pause_message_listener(self) -> None:
        """Stop calling the listener until `resume_message_listener`; a call in progress is not interrupted.

        Raises:
            InvalidConfig: the consumer has no listener.
        """
        self._listener().pause()

    def resume_message_listener(self) -> None:
        """Call the listener again; raises the same errors as `pause_message_listener`."""
        self._listener().resume()

    @property
    def is_listener_paused(self) -> bool:
        """Whether the listener, if any, is paused; thread-safe."""
        return self._listening is not None and self._listening.is_paused

    def _listener(self) -> Listening[M]:
        if self._listening is None:
            raise InvalidConfig("the consumer has no listener: subscribe with message_listener")
        return self._listening


class Listening(Generic[M]):
    """Receives messages from a consumer and passes them to its listener."""

    def __init__(self, consumer: Receiving[M], deliver: Deliver[M]):
        self._consumer = consumer
        self._deliver = deliver
        self._is_running = asyncio.Event()
        self._is_running.set()

    @property
    def is_paused(self) -> bool:
        """Whether the listener is paused; thread-safe."""
        return not self._is_running.is_set()

    def pause(self) -> None:
        """Stop calling the listener."""
        self._is_running.clear()

    def resume(self) -> None:
        """Call the listener again."""
        self._is_running.set()

    async def run(self) -> None:
        """Pass messages to the listener until the consumer is closed or has failed.

        Cancellation: messages that were received but not passed on are redelivered to the next consumer.
        """
        taken: list[M] = []
        while True:
            await self._is_running.wait()
            try:
                if not taken:
                    taken.append(await self._consumer.receive())
                while len(taken) < LISTENER_BATCH and (message := self._consumer.poll()) is not None:
                    taken.append(message)
            except ClosedError:
                return
            except MagnetarError as error:
                log.error("%r: stopped calling the listener: %s", self._consumer, error)
                return
            if self._is_running.is_set():
                del taken[: await self._deliver(taken)]


def call_listener(listener: Callable[[Receiving[M], M], Awaitable[object]], consumer: Receiving[M]) -> Deliver[M]:
    """Return a `Deliver` that calls a coroutine function with the consumer and each message."""

    async def deliver(messages: Sequence[M]) -> int:
        for count, message in enumerate(messages):
            if consumer.is_listener_paused:
                return count
            try:
                await listener(consumer, message)
            except Exception:
                log.exception("%r: listener raised", consumer)
        return len(messages)

    return deliver
