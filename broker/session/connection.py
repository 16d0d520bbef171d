"""A client's connection: parses incoming frames, sends outgoing ones, and applies flow control in both directions.

Design: the connection handles sockets and time, but not topics. Incoming frames are passed to the handlers in
`commands`. Outgoing frames are collected and sent in one joined write at the end of the event loop iteration. These
limits bound the memory of a connection:

* Above `max_pending_publishes` unconfirmed entries, or while storage is congested, the socket is not read. One read
  (256 KiB or a frame) may exceed the limit.
* Above `write_buffer_bytes` of unsent data, or the peer's share of the `DeliveryMemory`, `is_writable` is False:
  dispatchers skip the peer's consumers, the socket is not read, and requests already read wait. One response and the
  contents of the `Outbox` may exceed the limit. A peer that reads nothing between two keep-alive ticks is disconnected.
* A large frame waits until the `FrameMemory` has room for all of it. Until then the socket is not read.
* While a topic's publish rate is used up, a SEND for it and all later frames wait, and the socket is not read.
* After handling commands for `SLICE_S` in one event loop iteration, the rest waits, and the socket is not read.
* While credentials are checked, no command is accepted, and the socket is not read.
* Slow requests run as tasks of the connection. Above `max_pending_requests` tasks, or `MAX_REQUEST_BYTES` of request
  size, the socket is not read.

As in Pulsar, a peer that violates the protocol is disconnected without an error response. A failed request always gets
an error response, even after an unexpected exception. A request with an invalid UTF-8 string is rejected before any
processing.

Source: Pulsar binary protocol, section Connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from google.protobuf.message import Message

from ...errors import InvalidTopicName, MagnetarError, NotAllowed, ProtocolError, ServiceNotReady
from ...security.roles import Roles
from ...tasks import TaskSet
from ...wire.commands import NO_REQUEST, wrap
from ...wire.frames import Frame, FrameDecoder, Run, encode_frame
from ...wire.pulsar_api_pb2 import BaseCommand, CommandError, CommandSuccess
from ...wire.runs import SEND_HEAD, read_sends
from ...wire.session import LEGAL, Role, State, violation
from ...wire.strings import bad_string
from ..errors import error_code, failed
from ..topics.registry import ClosedProducers, Registry
from .commands import HANDLERS
from .frame_memory import LARGE_BYTES, SETTING
from .frame_queue import FrameQueue
from .keep_alive import KeepAlive
from .outbox import Outbox
from .topic_watches import ConnectionWatches
from .turns import SLICE_S

if TYPE_CHECKING:
    from ...security.roles import Roles
    from ..topics.consumer import Consumer
    from ..topics.producer import Producer
    from .authentication import ConnectionAuthentication
    from .ports import ServicePort

log = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 5.0
"""Timeout for sending pending bytes when a connection is closed."""

MAX_FIRST_FRAME_BYTES = 128 * 1024
"""Maximum frame size before authentication. A CONNECT with credentials is smaller."""

MAX_REQUEST_BYTES = 16 * 1024 * 1024
"""Maximum total size of a connection's concurrent requests, in bytes. A single read may exceed it."""

_SEND = BaseCommand.SEND


class Connection(asyncio.Protocol):
    """The broker's side of a client connection.

    Attributes:
        listener: advertised listener of the socket, or an empty string.
        producers: active producers by id.
        consumers: active consumers by id.
        topic_watches: topic lists that the peer watches.
        closed_producers: ids of producers closed by the broker, which the client may still use.
        pending_publishes: unanswered entries. A SEND increases the number, and `publishes_answered` decreases it; a
            long command counts as many entries (`hold_back`).
        is_reading: False while the socket is not read.
        is_writable: False while the peer reads too slowly.
        state: whether CONNECT was received.
        client_version: client version in CONNECT, or None before.
        roles: authenticated roles; None before authentication, or if authentication is disabled.
        authentication: authentication of the peer; None before CONNECT, or if authentication is disabled.
        is_held: whether commands wait for authentication.
    """

    def __init__(self, broker: ServicePort, listener: str = ""):
        self.broker = broker
        self.listener = listener
        self.config = broker.config
        self.loop = asyncio.get_running_loop()
        self.producers: Registry[Producer] = Registry()
        self.consumers: Registry[Consumer] = Registry()
        self.topic_watches = ConnectionWatches()
        self.closed_producers = ClosedProducers()
        self.is_writable = True
        self.is_closed = False
        self.enter(State.CONNECTING)
        self.client_version: str | None = None
        self.roles: Roles | None = None
        self.authentication: ConnectionAuthentication | None = None
        self.is_held = False
        self.protocol_version = 0
        self.address = ""
        self._transport: asyncio.Transport | None = None
        self._decoder = FrameDecoder(min(self.config.max_frame_bytes, MAX_FIRST_FRAME_BYTES))
        self._outbox = Outbox(self.loop, self.config.write_buffer_bytes, self.publishes_answered)
        # Used for each command, and for each message to a consumer: bound here to avoid a method call.
        self.write = self._outbox.write
        self.write_many = self._outbox.write_many
        self.answer_later = self._outbox.answer_later
        self._tasks = TaskSet("connection")
        self._request: Message | None = None
        self._request_bytes = 0
        self._postponed: FrameQueue | None = None
        self._throttle: asyncio.TimerHandle | None = None
        self.pending_publishes = 0
        self.is_reading = True
        self._reserved_bytes = 0
        self._waits_for_memory = False
        self._is_released = False
        self._keep_alive = KeepAlive(self)
        self._close_timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"Connection({self.address or '?'}, client={self.client_version!r})"

    # The socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport and start the keep-alive. Called by the event loop."""
        transport = cast(asyncio.Transport, transport)  # uvloop's transport has the interface but not the base class
        self._transport = self._outbox.transport = transport
        peer = transport.get_extra_info("peername")
        self.address = f"/{peer[0]}:{peer[1]}" if peer else "/unknown"
        self._tasks.owner = f"connection {self.address}"
        transport.set_write_buffer_limits(high=self.broker.delivery_memory.share_bytes)
        self._keep_alive.start()
        self.broker.connection_made(self)

    def data_received(self, data: bytes) -> None:
        """Handle all complete frames."""
        keep_alive = self._keep_alive
        keep_alive.is_silent = False
        if keep_alive.probe is not None:
            keep_alive.tell_probe(True)
        decoder = self._decoder
        try:
            frames = decoder.feed_runs(data, read_sends, SEND_HEAD)
        except ProtocolError as error:
            self._break(error)
            return
        if self._postponed is None:
            self._take(iter(frames))
        else:  # a paused transport may still deliver data that it has read
            self._postponed.extend(frames)
            if self._throttle is None and not self.is_held:
                self._take(self._postponed)
        if self._reserved_bytes:
            if frames:
                self._reserve()
        elif decoder.wanted_bytes >= LARGE_BYTES:
            self._reserve()

    def _take(self, frames: Iterator[Frame | Run]) -> None:
        """Handle frames in order. If the peer reads too slowly, the rest waits."""
        producers = self.producers
        turns = self.broker.turns
        sent = 0
        end_s = 0.0
        try:
            for frame in frames:
                if type(frame) is Run:
                    taken, rest = self._publish_run(frame)
                    sent += taken
                    if rest is not None:
                        self._postpone(frames, rest)
                        break
                    if self.is_closed:
                        return
                    continue
                command, payload = cast(Frame, frame)
                kind = command.type
                if kind == _SEND:
                    send = command.send
                    producer = producers.get(send.producer_id)
                    if producer is None:
                        self._send_to_nobody(send.producer_id)
                    elif producer.topic.gate is not None and producer.is_throttled():
                        self._postpone(frames, frame)
                        break
                    else:
                        sent += producer.publish(send, payload)
                else:
                    self._handle(kind, command)
                    if not self.is_writable or self.is_held:
                        self._postponed = FrameQueue.of(frames)
                        break
                    now_s = turns.monotonic()
                    end_s = end_s or now_s + SLICE_S
                    if now_s >= end_s:
                        self._postponed = FrameQueue.of(frames)
                        self._stop_reading()
                        turns.wait(self._take_postponed)
                        break
                if self.is_closed:
                    return
            pending = self.pending_publishes = self.pending_publishes + sent
            if pending and (pending >= self.config.max_pending_publishes or self.broker.storage.is_congested):
                self._stop_reading()  # this connection, or all combined, publishes faster than the disk can write
        except ProtocolError as error:
            self._break(error)
        except Exception:
            # Connection boundary: a failure here is a bug, but must affect only this peer.
            log.exception("closing %r after an internal error", self)
            self.close()

    def _publish_run(self, run: Run) -> tuple[int, Run | None]:
        """Publish a run of SENDs from one producer; return the number published, and the rest, which must wait."""
        producer = self.producers.get(run.owner_id)
        if producer is None:
            self._send_to_nobody(run.owner_id)
            return 0, None
        if producer.topic.gate is None:
            return producer.publish_all(run.rows), None
        taken, rest = producer.publish_some(run.rows)
        return taken, Run(run.owner_id, rest) if rest else None

    def _break(self, error: ProtocolError) -> None:
        log.info("closing %r after a protocol error: %s", self, error)
        self.close()

    def eof_received(self) -> bool:
        """Close this side as well after the peer closed its side."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the peer's producers, consumers and pending requests. Idempotent, as `abort` also calls it."""
        if self._is_released:
            return
        self._is_released = True
        self.is_closed = True
        self.is_writable = False
        self.broker.connection_lost(self)
        self._keep_alive.stop()
        self._keep_alive.tell_probe(False)
        if self.authentication is not None:
            self.authentication.stop()
        if self._close_timer is not None:
            self._close_timer.cancel()
        self._outbox.discard()
        if self._throttle is not None:
            self._throttle.cancel()
        self._tasks.cancel()
        self._postponed = None
        self.broker.frame_memory.release(self)
        self.broker.delivery_memory.resumed(self)
        leaving: deque[Producer | Consumer] = deque((*self.producers.values(), *self.consumers.values()))
        self.producers.clear()
        self.consumers.clear()
        self.topic_watches.close_all()
        self._detach(leaving)

    def _detach(self, leaving: deque[Producer | Consumer]) -> None:
        """Detach producers and consumers from their topics, over several event loop iterations if there are many.

        A request that needs the name or the exclusive subscription of one of them detaches it earlier.
        """
        turns = self.broker.turns
        end_s = turns.monotonic() + SLICE_S
        while leaving:
            leaving.popleft().detach()
            if turns.monotonic() >= end_s and leaving:
                turns.wait(partial(self._detach, leaving))
                return

    def pause_writing(self) -> None:
        """Stop sending messages to the peer and reading from it, because it reads too slowly."""
        self.is_writable = False
        self._keep_alive.writing_paused()
        self._stop_reading()
        if not self._is_released:
            self.broker.delivery_memory.paused(self)

    def resume_writing(self) -> None:
        """Resume waiting requests, and wake the peer's consumers."""
        self.broker.delivery_memory.resumed(self)
        self.is_writable = not self.is_closed
        if not self.is_writable:
            return
        if self._postponed is not None and self._throttle is None:
            # In a separate iteration, because this may be called from within a write.
            self.loop.call_soon(self._take_postponed)
        for consumer in list(self.consumers.values()):
            consumer.subscription.wake()
        self.topic_watches.wake()
        self.read_on()

    def _take_postponed(self) -> None:
        frames = self._postponed
        if frames is None or self.is_closed:
            return
        if self.is_writable and self._throttle is None and not self.is_held:
            self._postponed = None
            self._take(frames)
            if self._reserved_bytes > self._large_frame_bytes and self._postponed is None:
                self._reserve()
            self.read_on()

    def _postpone(self, frames: Iterator[Frame | Run], first: Frame | Run) -> None:
        """Queue entries that a producer may not publish yet, and all later frames, to preserve the command order."""
        self._postponed = FrameQueue.of(frames)
        self._postponed.give_back(first)

    def throttle(self, wait_s: float) -> None:
        """Stop reading for that time because a topic's publish rate is used up; frames already read wait."""
        if self._throttle is None and not self.is_closed:
            self._throttle = self.loop.call_later(wait_s, self._end_throttle)
        self._stop_reading()

    def _end_throttle(self) -> None:
        self._throttle = None
        self._take_postponed()
        self.read_on()

    def hold(self) -> None:
        """Accept no commands until `release`, while the peer is being authenticated."""
        self.is_held = True
        self._stop_reading()

    def release(self) -> None:
        """Handle the frames received meanwhile, in order, unless the connection is closed."""
        self.is_held = False
        if not self.is_closed:
            self._take_postponed()
            self.read_on()

    # Shared memory

    @property
    def _large_frame_bytes(self) -> int:
        wanted = self._decoder.wanted_bytes
        return wanted if wanted >= LARGE_BYTES else 0

    def _reserve(self) -> None:
        """Reserve memory for the incoming frame and for waiting frames. Until there is room, the socket is not read."""
        if self.is_closed:
            return
        size = self._large_frame_bytes
        if self._postponed is not None:
            size = max(size, self._reserved_bytes)  # waiting frames were read with it
        self._reserved_bytes = size
        self._waits_for_memory = False
        if not size:
            self.broker.frame_memory.release(self)
        elif not self.broker.frame_memory.reserve(self, size):
            self._waits_for_memory = True
            self._stop_reading()

    @property
    def kept_bytes(self) -> int:
        """Bytes received of the incomplete frame."""
        return self._decoder.kept_bytes

    def memory_granted(self) -> None:
        """Resume reading, because there is room for the frame."""
        self._waits_for_memory = False
        self.read_on()

    def refuse_memory(self, reason: str) -> None:
        """Drop the incomplete frame, and close the connection with an error."""
        log.warning("closing %r: %s", self, reason)
        self.broker.frame_memory.release(self)
        self._reserved_bytes = 0
        self._decoder.forget()
        self.fail(NO_REQUEST, ServiceNotReady(reason))
        self.close()

    def limit_unsent(self, share_bytes: int) -> None:
        """Limit the peer's unsent bytes."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.set_write_buffer_limits(high=share_bytes)

    def give_way(self, reason: str) -> None:
        """Close immediately because memory is short. The peer reads nothing, so no error is sent."""
        log.warning("closing %r: it %s", self, reason)
        self.abort()

    # Interface for handlers

    def enter(self, state: State) -> None:
        """Switch to a session state with its legal commands."""
        self.state = state
        self._legal = LEGAL[Role.CLIENT][state]  # looked up here instead of for each command

    def is_known(self) -> str:
        """Start accepting the commands of an authenticated client.

        Returns:
            The error message if the broker rejects this connection, or an empty string.
        """
        self._decoder.max_frame_bytes = self.config.max_frame_bytes
        return self.broker.connection_known(self)

    def reply(self, command: Message) -> None:
        """Send one command."""
        self.write(encode_frame(wrap(command)))

    def tell_closed(self, command: Message) -> None:
        """Send CLOSE_PRODUCER or CLOSE_CONSUMER; disconnect a peer that does not support them (below version 5)."""
        if self.protocol_version >= 5:
            self.reply(command)
        else:
            self.close()

    def start(self, request_id: int, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run the work of a request as a task of this connection. An exception becomes the error response.

        Raises:
            ProtocolError: the request lacks a required field, which is checked only here for commands sent in bursts.
        """
        request = self._request
        if request is not None and not request.IsInitialized():
            work.close()
            raise ProtocolError(f"command type {wrap(request).type} lacks a required field")
        size = request.ByteSize() if request is not None else 0
        if size >= LARGE_BYTES and not self.broker.frame_memory.take(size):
            work.close()
            raise ServiceNotReady(f"not enough memory for a request of {size} bytes ({SETTING}): retry later")
        self._request_bytes += size
        task = self._tasks.start(self._answer(request_id, request, work), f"request {request_id}")

        def ended(task: asyncio.Task[None]) -> None:
            work.close()  # a coroutine cancelled before its first step would warn that it was never awaited
            self._request_bytes -= size
            if size >= LARGE_BYTES:
                self.broker.frame_memory.give_back(size)
            if not self.is_reading:
                self.read_on()

        task.add_done_callback(ended)
        if len(self._tasks) >= self.config.max_pending_requests or self._request_bytes >= MAX_REQUEST_BYTES:
            self._stop_reading()
        return task

    def succeed(self, request_id: int) -> None:
        """Send a success response without content."""
        self.reply(CommandSuccess(request_id=request_id))

    def fail(self, request_id: int, error: Exception) -> None:
        """Send an error response to a request."""
        code, message = error_code(error)
        self.reply(CommandError(request_id=request_id, error=code, message=message))

    def remove_producer(self, producer: Producer, *, ignores: bool = False) -> None:
        """Remove a producer. With ``ignores``, later commands for its id are ignored for a while."""
        self.producers.remove(producer)
        if ignores:
            self.closed_producers.ignore(producer.id, self.loop.time() + self.config.keep_alive_s)

    async def is_alive(self) -> bool:
        """Return whether the peer sends anything within the liveness timeout; disconnect it otherwise.

        Cancellation: safe.
        """
        return await self._keep_alive.is_alive()

    def publishes_answered(self, entries: int) -> None:
        """Subtract entries that were answered, or will never be, from the pending ones."""
        self.pending_publishes -= entries
        if not self.is_reading:
            self.read_on()

    def hold_back(self) -> Callable[[], None]:
        """Stop reading commands while a long one is processed in batches; call the returned function to resume."""
        charge = self.config.max_pending_publishes
        self.pending_publishes += charge
        return partial(self.publishes_answered, charge)

    @property
    def certificate(self) -> Mapping[str, Any] | None:
        """The client certificate verified by TLS, or None without a certificate or TLS."""
        return self._transport.get_extra_info("peercert") if self._transport is not None else None

    @property
    def unsent_bytes(self) -> int:
        """Bytes buffered by the transport because the peer has not read them."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def close(self) -> None:
        """Close the connection once pending bytes are sent, or after `CLOSE_TIMEOUT_S`."""
        if self._transport is None or self.is_closed:
            return
        self._outbox.flush()
        self._outbox.close()
        self.is_closed = True
        self._transport.close()
        self._keep_alive.stop()
        if self.authentication is not None:
            self.authentication.stop()
        self._close_timer = self.loop.call_later(CLOSE_TIMEOUT_S, self._transport.abort)

    def abort(self) -> None:
        """Close the connection immediately, and release everything that belongs to the peer."""
        if self._transport is not None:
            self._transport.abort()
        self.connection_lost(None)

    # Internals

    def _handle(self, kind: int, command: BaseCommand) -> None:
        handler = HANDLERS.get(kind)
        if handler is not None and not command.HasField(handler.field):
            raise ProtocolError(f"command type {kind} lacks its field {handler.field}")
        if handler is None or kind not in self._legal:
            raise ProtocolError(violation(Role.CLIENT, self.state, kind))
        request = getattr(command, handler.field)
        if handler.has_strings and (field := bad_string(request)) is not None:
            self._refuse_bytes(request, field)
            return
        self._request = request
        try:
            handler.run(self, request)
        except ProtocolError:
            raise
        except Exception as error:
            answer = failed(request, error)
            if answer is None:
                raise
            if not isinstance(error, MagnetarError):
                log.exception("%r: %s failed", self, handler.field)
            self.reply(answer)
        finally:
            self._request = None

    def _refuse_bytes(self, request: Message, field: str) -> None:
        text = f"field {field} of {request.DESCRIPTOR.name} is not valid UTF-8"
        error = InvalidTopicName(text) if field == "topic" else NotAllowed(text)
        answer = failed(request, error)
        if answer is None:
            raise ProtocolError(text)
        self.reply(answer)

    def _send_to_nobody(self, producer_id: int) -> None:
        if not self.closed_producers.is_ignored(producer_id, self.loop.time()):
            raise ProtocolError(f"SEND to unknown producer {producer_id}")

    async def _answer(self, request_id: int, request: Message | None, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # request boundary: the peer receives the error, and the cause is logged
            if isinstance(error, ConnectionError) and self.is_closed:
                log.info("%r: request %d failed: %s", self, request_id, error)
                return
            if not isinstance(error, MagnetarError):
                log.exception("%r: request %d failed", self, request_id)
            answer = failed(request, error) if request is not None else None
            if answer is None:
                self.fail(request_id, error)
            else:
                self.reply(answer)

    def _stop_reading(self) -> None:
        if self.is_reading and self._transport is not None and not self._transport.is_closing():
            self.is_reading = False
            self._transport.pause_reading()

    def read_on(self) -> None:
        """Resume reading the socket unless a limit still applies."""
        config = self.config
        if (
            not self.is_reading
            and self.is_writable
            and self._postponed is None
            and not self.is_held
            and not self._waits_for_memory
            and self.pending_publishes * 2 <= config.max_pending_publishes
            and not self.broker.storage.is_congested
            and len(self._tasks) * 2 <= config.max_pending_requests
            and self._request_bytes * 2 <= MAX_REQUEST_BYTES
            and self._transport is not None
            and not self._transport.is_closing()
        ):
            self.is_reading = True
            self._transport.resume_reading()
