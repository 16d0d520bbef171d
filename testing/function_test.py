"""Tests a function: send messages to it and check the results.

    def test_it_shouts() -> None:
        with FunctionTest(shout, inputs="words", output="shouts") as f:
            f.send("hello")
            assert f.output() == "HELLO"

The function runs in the same pipeline as on a worker, with acknowledgements, redelivery, state and guarantees, on the
broker in `cluster.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from ..api.serde import IdentitySerDe, SerDe
from ..client.client import AsyncClient
from ..client.config import ProducerConfig
from ..client.consumers.reader import Reader
from ..client.consumers.received import Message
from ..client.deploy.deployment import function_config
from ..config.conversion import read_function_config, to_details
from ..config.function_config import EFFECTIVELY_ONCE, FunctionConfig
from ..config.rules import check, with_defaults
from ..errors import InvalidConfig
from ..instance.acks.at_least_once import AtLeastOnce
from ..instance.exact.effectively_once import EffectivelyOnce
from ..wire.function_letters import LETTERS_SUFFIX
from ..wire.functions_pb2 import EARLIEST as FROM_EARLIEST
from ..wire.functions_pb2 import FunctionMetaData
from ..wire.message_id import EARLIEST, MessageId
from .cluster import Cluster, shared_cluster
from .home import CLASS_NAME
from .instances import TestedInstance
from .own_topics import OwnTopics
from .tested_state import TestedState

_LOOK_S = 0.005
_NAME = re.compile(r"[^\w.-]+")


class FunctionFailed(AssertionError):
    """The function raised, or its instance ended; the message is the traceback."""


class NoOutput(AssertionError):
    """No output arrived in time."""


class FunctionTest:
    """A function that runs within a ``with`` block.

    Attributes:
        timeout_s: timeout of all waits, for example of `output`, in real seconds.
        state: the function's state: ``f.state["key"]``.
        cluster: the cluster that it runs on.
    """

    timeout_s = 10.0

    def __init__(
        self,
        function: object,
        *,
        inputs: str | Sequence[str] | None = "in",
        output: str | None = "out",
        guarantee: str | None = None,
        beside: FunctionTest | None = None,
        **settings: Any,
    ) -> None:
        """Create a test of a function, which is started by ``with``.

        Args:
            function: a function, a class with a ``process`` method, or an instance of such a class.
            inputs: input topics; None if ``settings`` contain them.
            output: output topic, or None.
            guarantee: ``ATLEAST_ONCE`` (the default), ``ATMOST_ONCE``, ``EFFECTIVELY_ONCE`` or ``MANUAL``.
            beside: another function under test, whose topics this one shares.
            **settings: other config fields, such as ``user_config={"limit": 3}``, with Python or JSON names. They are
                validated as by `functions create`.

        Raises:
            InvalidConfig: a setting is unknown or not supported.
        """
        if guarantee is not None:
            settings["processing_guarantees"] = guarantee
        self._function = function
        self._config = _checked(function, inputs, output, settings)
        self.cluster: Cluster = beside.cluster if beside is not None else shared_cluster()
        self._topics: OwnTopics = beside._topics if beside is not None else OwnTopics(f"-{_random()}")
        details = to_details(self._config)
        details.source.subscriptionPosition = FROM_EARLIEST  # otherwise messages sent during startup would be missed
        self._metadata = FunctionMetaData(functionDetails=details, functionUuid=uuid.uuid4().hex)
        self.state = TestedState(self.cluster, self._metadata, self.settle)
        self._instances: list[TestedInstance] = []
        self._producers: dict[str, Any] = {}
        self._readers: dict[str, Reader] = {}
        self._sent = 0
        self._known_failures = 0
        self._failures_before: list[str] = []  # unchecked failures of instances before a restart
        self._output_serde: SerDe = IdentitySerDe()

    # -- starting and stopping -------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        """Start the function, and return once it is waiting for messages.

        Raises:
            FunctionFailed: the function cannot be loaded or started.
        """
        self._client: AsyncClient = self.cluster.call(self.cluster.make_client(self._topics.name))
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the function.

        Raises:
            FunctionFailed: the function raised, and the test did not check `failures`.
        """
        try:
            if error is None:
                self.settle()
                self._raise_failures()
        finally:
            self._stop()

    def restart(self) -> None:
        """Restart the function, as after a process crash: state is retained, memory is lost.

        Unacknowledged messages are redelivered. A function that is a closure or an object keeps its references.
        """
        if self._failed_so_far() > self._known_failures:
            self._failures_before += self._tracebacks()
        self._stop_instances()
        self._start()

    def _start(self) -> None:
        cluster, details = self.cluster, self._metadata.functionDetails
        if self._config.processing_guarantees == EFFECTIVELY_ONCE and details.sink.topic:
            cluster.call(cluster.drop_duplicates(self._topics.name(details.sink.topic)))
        self._sent = 0
        self._known_failures = 0
        for number in range(details.parallelism):
            instance = TestedInstance(self._function, self._metadata, number, cluster, self._client)
            self._instances.append(instance)
            instance.start(self.timeout_s)
            if instance.end is not None:
                raise FunctionFailed(instance.end)
        values = self._instances[0].pipeline.values
        self._output_serde = values.output if values is not None else IdentitySerDe()

    def _stop_instances(self) -> None:
        for instance in self._instances:
            instance.stop()
        self._instances = []

    def _stop(self) -> None:
        self._stop_instances()
        self.cluster.call(self._close())

    async def _close(self) -> None:
        for one in (*self._producers.values(), *self._readers.values()):
            await one.close()
        self._producers.clear()
        self._readers.clear()
        if self.cluster.is_real:  # leave no subscription that retains messages there
            details = self._metadata.functionDetails
            await _unsubscribe(self._client, self._inputs, self._subscription)
            if letters := details.retryDetails.deadLetterTopic:
                whose = f"{details.tenant}/{details.namespace}/{details.name}"
                await _unsubscribe(self._client, [letters], whose + LETTERS_SUFFIX)
        await self._client.close()

    # -- messages -------------------------------------------------------------------------------------------------

    def send(self, value: Any, *, topic: str | None = None, **options: Any) -> MessageId:
        """Send a message to the function and return its id.

        Args:
            value: bytes are sent unchanged, dicts and lists as JSON, and other values by the function's annotation, or
                else as strings. If the input has a SerDe or schema, a value for it.
            topic: the input topic; the first by default.
            **options: ``key``, ``properties``, ``event_time_ms``, ``deliver_after`` (timedelta), ``deliver_at_ms`` and
                other options of `client.Producer.send`.
        """
        name = topic or self._inputs[0]
        payload = self._encoded(value, name)
        sent: MessageId = self.cluster.call(self._send(name, payload, options))
        if name in self._inputs and not {"deliver_after", "deliver_at_ms"}.intersection(options):
            self._sent += 1
        return sent

    async def _send(self, topic: str, payload: bytes, options: Mapping[str, Any]) -> MessageId:
        if topic not in self._producers:
            self._producers[topic] = await self._client.create_producer(topic, ProducerConfig(batching=False))
        sent: MessageId = await self._producers[topic].send(payload, **options)
        return sent

    def _encoded(self, value: Any, topic: str) -> bytes:
        specs = self._metadata.functionDetails.source.inputSpecs
        has_own = topic in specs and bool(specs[topic].serdeClassName or specs[topic].schemaType)
        if not has_own and isinstance(value, bytes):
            return value
        if not has_own and isinstance(value, dict | list):
            return json.dumps(value).encode()
        values = self._instances[0].pipeline.values if self._instances else None
        serde = values.inputs.get(topic) if values is not None else None
        return (serde or IdentitySerDe()).serialize(value)

    def output(self, *, topic: str | None = None, into: Callable[[bytes], Any] | None = None) -> Any:
        """Return the next output of the function, waiting for it.

        Args:
            topic: the output topic by default; may be any topic that the function publishes to.
            into: converts the bytes, such as ``bytes`` or ``json.loads``. By default, the value has the function's
                return type, according to its SerDe or annotation; without these, it is a number, string or bytes,
                whichever fits first.

        Raises:
            FunctionFailed: the function raised, and no remaining message can produce an output.
            NoOutput: no output arrived.
        """
        message = self.output_message(topic=topic)
        return self._decoded(message, topic, into)

    def _decoded(self, message: Message, topic: str | None, into: Callable[[bytes], Any] | None) -> Any:
        if into is None:
            into = self._output_serde.deserialize if topic in (None, self._output) else IdentitySerDe().deserialize
        return into(message.data)

    def output_message(self, *, topic: str | None = None) -> Message:
        """Return the next output as a message, with ``data``, ``key`` and ``properties``; see `output`."""
        found = self.cluster.call(self._next(self._output_name(topic)))
        if found is None:
            self._raise_failures()
            raise NoOutput(f"no output on {self._output_name(topic)} within {self.timeout_s:g} s: {self._counted()}")
        assert isinstance(found, Message)
        return found

    def outputs(self, *, topic: str | None = None, into: Callable[[bytes], Any] | None = None) -> list[Any]:
        """Return all outputs, once all sent messages are processed; an empty list if there are none.

        Raises:
            FunctionFailed: the function raised, and the test did not check `failures`.
        """
        self.settle()
        self._raise_failures()
        messages: list[Message] = self.cluster.call(self._all(self._output_name(topic)))
        return [self._decoded(message, topic, into) for message in messages]

    async def _reader(self, topic: str) -> Reader:
        if topic not in self._readers:
            self._readers[topic] = await self._client.create_reader(topic, EARLIEST)
        return self._readers[topic]

    async def _next(self, topic: str) -> Message | None:
        """Wait for a message; return None on timeout."""
        reader = await self._reader(topic)
        until_s = time.monotonic() + self.timeout_s
        while time.monotonic() < until_s:
            if (message := reader.poll()) is not None:
                return message
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await reader.arrival()
                continue
            is_over = self._failed_so_far() > self._known_failures and self._is_through()
            if is_over or any(instance.end is not None for instance in self._instances):
                await self._settle_all()
                if not await reader.has_message_available():
                    return None
        return None

    async def _all(self, topic: str) -> list[Message]:
        reader, found = await self._reader(topic), []
        while await reader.has_message_available():
            found.append(await reader.receive())
        return found

    # -- checking the results -------------------------------------------------------------------------------------

    @property
    def backlog(self) -> int:
        """Number of unacknowledged messages on all inputs, after all sent messages have been attempted."""
        self.settle()
        return sum(
            self.cluster.call(self.cluster.backlog(self._topics.name(topic), self._subscription))
            for topic in self._inputs
        )

    @property
    def failures(self) -> list[str]:
        """The latest exceptions with tracebacks, at most ten of each kind, from all messages sent so far."""
        self.settle()
        return self._look_at_failures()

    @property
    def logs(self) -> str:
        """Log lines of the function's context logger and of its instances."""
        return "".join(instance.log_text() for instance in self._instances)

    def settle(self) -> None:
        """Wait until all sent messages are processed, and the results are stored and acknowledged.

        Does not wait for timers, such as retries or delayed messages (see `advance`), or for messages on inputs that
        the function has paused.

        Raises:
            NoOutput: the function took longer than `timeout_s`.
        """
        self.cluster.call(self._settle(), self.timeout_s * 3 + 1)

    async def _settle(self) -> None:
        until_s = time.monotonic() + self.timeout_s
        looks = 0
        while looks < 2:  # a received message is counted shortly before it counts as in progress
            looks = looks + 1 if self._is_through() else 0
            if time.monotonic() > until_s:
                raise NoOutput(f"the function was still running after {self.timeout_s:g} s: {self._counted()}")
            await asyncio.sleep(_LOOK_S / 5)
        await self._settle_all()

    async def _settle_all(self) -> None:
        for instance in self._instances:
            settlement = instance.pipeline.settlement
            if instance.end is None and isinstance(settlement, AtLeastOnce | EffectivelyOnce):
                await settlement.settle(())

    def advance(self, seconds: float) -> None:
        """Advance the clock of broker and function, and return when all due work is done.

        This triggers redelivery after a failure, delayed messages, and expiry. The clock jumps from one event to the
        next, and stops while the function runs. Python's clock (``time.time``) is not affected. With a real broker,
        this waits for the time to pass.

        Args:
            seconds: 0 or more.

        Raises:
            OperationTimeout: the function is still running after `timeout_s` real seconds.
        """
        if not 0 <= seconds < math.inf:
            raise InvalidConfig(f"invalid seconds {seconds!r}: must be a finite number >= 0")
        self.settle()
        self.cluster.advance(seconds, self.timeout_s)
        self.settle()

    def time(self) -> float:
        """Return the seconds since 1970 by the clock that `advance` controls."""
        return self.cluster.time()

    def _is_through(self) -> bool:
        """Return whether all sent messages have been received and none is in progress."""
        if any(instance.end is not None for instance in self._instances):
            return True
        if any(_has_paused(instance) for instance in self._instances):
            return not any(instance.pipeline.is_busy for instance in self._instances)
        received = sum(instance.pipeline.stats.total.received for instance in self._instances)
        return received >= self._sent and not any(instance.pipeline.is_busy for instance in self._instances)

    def _failed_so_far(self) -> int:
        totals = [instance.pipeline.stats.total for instance in self._instances]
        ended = sum(1 for instance in self._instances if instance.end)
        return sum(total.user_exceptions + total.system_exceptions for total in totals) + ended

    def _tracebacks(self) -> list[str]:
        texts = []
        for instance in self._instances:
            status = instance.pipeline.status()
            latest = [*status.latestUserExceptions, *status.latestSystemExceptions]
            texts += [one.exceptionString for one in latest]
            if instance.end and instance.end not in texts:
                texts.append(instance.end)
        return texts

    def _raise_failures(self) -> None:
        if self._failures_before or self._failed_so_far() > self._known_failures:
            raise FunctionFailed("\n".join(["the function failed:", *self._look_at_failures()]))

    def _look_at_failures(self) -> list[str]:
        self._known_failures = self._failed_so_far()
        before, self._failures_before = self._failures_before, []
        return [*before, *self._tracebacks()]

    def _counted(self) -> str:
        totals = [instance.pipeline.stats.total for instance in self._instances]
        taken, done = sum(total.received for total in totals), sum(total.processed for total in totals)
        return f"{self._sent} messages were sent, {taken} received, {done} processed"

    @property
    def _inputs(self) -> list[str]:
        return list(self._metadata.functionDetails.source.inputSpecs)

    @property
    def _output(self) -> str:
        return self._metadata.functionDetails.sink.topic

    @property
    def _subscription(self) -> str:
        details = self._metadata.functionDetails
        return details.source.subscriptionName or f"{details.tenant}/{details.namespace}/{details.name}"

    def _output_name(self, topic: str | None) -> str:
        name = topic or self._output
        if not name:
            raise InvalidConfig("the function has no output topic: pass output(topic=…)")
        return name


def _checked(
    function: object, inputs: str | Sequence[str] | None, output: str | None, settings: Mapping[str, Any]
) -> FunctionConfig:
    """Return the config with defaults, validated as at `create`."""
    given = dict(settings)
    tenant, namespace = given.pop("tenant", "public"), given.pop("namespace", "default")
    own_name = getattr(function, "__name__", "") or type(function).__name__
    name = given.pop("name", None) or _NAME.sub("-", own_name).strip("-.") or "function"
    sent = read_function_config(json.loads(function_config(inputs, output, given)))
    config = with_defaults(
        replace(
            sent, tenant=tenant, namespace=namespace, name=name, class_name=CLASS_NAME,
            runtime_env=sent.runtime_env or "thread",
        )
    )  # fmt: skip
    check(config)
    if pattern := next((text for text, given in config.input_specs.items() if given.is_regex_pattern), ""):
        raise InvalidConfig(f"pattern {pattern!r} is not supported, because tests use separate topics: list the inputs")
    return config


def _has_paused(instance: TestedInstance) -> bool:
    """Return whether the function has paused an input, on which messages may then remain."""
    settlement = instance.pipeline.settlement
    return isinstance(settlement, AtLeastOnce | EffectivelyOnce) and bool(settlement.steering.paused())


async def _unsubscribe(client: AsyncClient, inputs: Sequence[str], subscription: str) -> None:
    for topic in inputs:
        consumer = await client.subscribe(topic, subscription)
        await consumer.unsubscribe()


def _random() -> str:
    return uuid.uuid4().hex[:8]
