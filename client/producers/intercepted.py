"""Producers with interceptors. These are separate classes, so that other producers do not pay for interceptors."""

from __future__ import annotations

import logging
from asyncio import Future
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Unpack

from ...errors import InvalidConfig, MagnetarError
from ...wire.message_id import MessageId
from ..config import ProducerConfig
from ..interceptors import ProducerInterceptor
from ..outgoing_message import OutgoingMessage, SendOptions, with_time
from .outgoing import OutgoingEntry
from .partitioned import PartitionedProducer
from .producer import Producer

log = logging.getLogger(__name__)


class Interceptors:
    """The interceptors of one producer, called in order."""

    def __init__(self, producer: object, interceptors: Sequence[ProducerInterceptor]):
        self._producer = producer
        self._interceptors = tuple(interceptors)

    def before(self, payload: bytes, options: SendOptions) -> OutgoingMessage:
        """Return the message to send after all interceptors have processed it."""
        message = OutgoingMessage.of(payload, options)
        for interceptor in self._interceptors:
            try:
                message = interceptor.before_send(self._producer, message)
            except Exception:
                log.exception("%r: before_send of %r raised", self._producer, interceptor)
        return message

    def send(self, message: OutgoingMessage, send: Callable[..., Future[MessageId]]) -> Future[MessageId]:
        """Send a message and notify the interceptors of the result; raises the same errors as ``send``."""
        try:
            future = send(message.payload, **message.options())
        except MagnetarError as error:
            self._after(message, None, error)
            raise
        future.add_done_callback(partial(self._done, message))
        return future

    def _done(self, message: OutgoingMessage, future: Future[MessageId]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            self._after(message, future.result(), None)
        else:
            self._after(message, None, error if isinstance(error, MagnetarError) else MagnetarError(repr(error)))

    def _after(self, message: OutgoingMessage, message_id: MessageId | None, error: MagnetarError | None) -> None:
        for interceptor in self._interceptors:
            try:
                interceptor.on_send_acknowledgement(self._producer, message, message_id, error)
            except Exception:
                log.exception("%r: on_send_acknowledgement of %r raised", self._producer, interceptor)

    def close(self) -> None:
        """Notify the interceptors, once, that the producer was closed."""
        interceptors, self._interceptors = self._interceptors, ()
        for interceptor in interceptors:
            try:
                interceptor.close()
            except Exception:
                log.exception("%r: close of %r raised", self._producer, interceptor)


def refusal(what: str) -> InvalidConfig:
    """Return the error for an operation that interceptors do not support."""
    return InvalidConfig(f"interceptors do not support {what}: send messages, or use a producer without interceptors")


class InterceptedProducer(Producer):
    """A producer of one topic with interceptors."""

    _interceptors: Interceptors | None = None

    def intercept(self, interceptors: Sequence[ProducerInterceptor]) -> None:
        """Set the interceptors (called by the client)."""
        self._interceptors = Interceptors(self, interceptors)

    def send_nowait(self, payload: bytes, **options: Unpack[SendOptions]) -> Future[MessageId]:
        """Send a message; see `Producer.send_nowait`."""
        if self._interceptors is None:
            return super().send_nowait(payload, **options)
        options = with_time(options, self._clock)
        return self._interceptors.send(self._interceptors.before(payload, options), super().send_nowait)

    def send_entry(self, entry: OutgoingEntry | Sequence[bytes]) -> Future[MessageId]:
        """Reject an entry.

        Raises:
            InvalidConfig: always, as interceptors require messages.
        """
        raise refusal("encoded entries")

    async def close(self) -> None:
        """Close the producer, then the interceptors; see `Producer.close`."""
        await super().close()
        if self._interceptors is not None:
            self._interceptors.close()


class InterceptedPartitionedProducer(PartitionedProducer):
    """A producer of a partitioned topic with interceptors, which are called before a partition is chosen."""

    def __init__(
        self,
        topic: str,
        producers: Sequence[Producer],
        config: ProducerConfig,
        rng: Random,
        clock: Callable[[], float],
    ):
        super().__init__(topic, producers, config, rng, clock)
        self._interceptors = Interceptors(self, config.interceptors)

    def send_nowait(self, payload: bytes, **options: Unpack[SendOptions]) -> Future[MessageId]:
        """Send a message; see `PartitionedProducer.send_nowait`."""
        options = with_time(options, self._clock)
        return self._interceptors.send(self._interceptors.before(payload, options), super().send_nowait)

    def send_awaited(self, payload: bytes, **options: Unpack[SendOptions]) -> Future[MessageId]:
        """Send a message whose caller awaits the receipt; see `PartitionedProducer.send_awaited`."""
        options = with_time(options, self._clock)
        return self._interceptors.send(self._interceptors.before(payload, options), super().send_awaited)

    async def send(self, payload: bytes, **options: Unpack[SendOptions]) -> MessageId:
        """Send a message and return its id; see `PartitionedProducer.send`."""
        if self._config.block_if_queue_full:
            options = with_time(options, self._clock)
            await self.ready()
        return await self.send_awaited(payload, **options)

    def send_entry(self, entry: OutgoingEntry | Sequence[bytes]) -> Future[MessageId]:
        """Reject an entry.

        Raises:
            InvalidConfig: always, as interceptors require messages.
        """
        raise refusal("encoded entries")

    async def close(self) -> None:
        """Close the producers, then the interceptors; see `PartitionedProducer.close`."""
        await super().close()
        self._interceptors.close()
