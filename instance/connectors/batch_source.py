"""Run a batch source as a source: take a task, read it to its end, and take the next one.

The tasks are messages of a topic that the instances share (`TaskTopic`). Instance 0 discovers them between two reads. A
task is acknowledged when all its records are durable; until then no other instance receives it. If an instance dies,
other instances restart its tasks. A task that cannot be read is requeued after the others; see `failed_tasks`.

Position: the version of the source's record for which the first discovery took place. An instance that restarts after
a crash does not repeat it, but an instance whose source was updated, or stopped and started, does.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import TimeoutError as NotYet
from typing import Any

from ...api.connector import BatchSource, ConnectorContext, EndOfInput, Position, Read, Source, Trigger
from ...client.config import ConsumerConfig, ProducerConfig
from ...client.consumers.received import Message
from ...config.batch_source import task_subscription, task_topic
from ...tasks import TaskSet
from ..acks.dead_letters import text_of
from ..batch_call import NOT_OF_ONE_MESSAGE
from ..core import InstanceCore
from ..publish_request import PublishRequest
from ..stopping import InstanceStopping
from .failed_tasks import Again, FailedTasks
from .session import AWAY, ConnectorSession

AWAY_MAX = 10
"""Consecutive starts of a task while the other system is unavailable, before other tasks are read."""
_WAIT_S = 0.2
"""Time that a read waits for a task."""
_EVENT = "discoveredEvent"
_TIME = "produceTime"


class TaskTopic:
    """One instance's access to the topic of tasks; used on the event loop, except for `poll` and `publish`."""

    def __init__(self, core: InstanceCore) -> None:
        """Create the access without opening the topic."""
        self._core = core
        self._topic = task_topic(core.spec.details)
        self._tasks = TaskSet(f"tasks of {core.spec.key}")
        self._wanted = asyncio.Event()
        self._is_asked_for = False
        self._taken: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._consumer: Any = None
        self._producer: Any = None

    async def open(self) -> None:
        """Open the topic.

        Raises:
            MagnetarError: the broker rejects the request.
        """
        core = self._core
        core.opening = f"task topic {self._topic}"
        config = ConsumerConfig(
            type="Shared", initial_position="Earliest", receiver_queue_size=0, ack_grouping_ms=0, guard=core.guard
        )
        self._consumer = await core.client.subscribe(self._topic, task_subscription(core.spec.details), config)
        if core.spec.instance_id == 0:
            await self._open_producer()
        self._tasks.start(self._take(), "take tasks", core.failed)

    async def _take(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            self._taken.put(await self._consumer.receive())

    def done(self, task: Message) -> None:
        """Acknowledge a task whose records are all durable."""
        self._consumer.ack(task)

    async def flush(self) -> None:
        """Wait until acknowledgements have been sent. Cancellation: safe."""
        if self._consumer is not None:
            await self._consumer.flush_acks()

    async def close(self) -> None:
        """Close the topic; another instance receives the current task."""
        await self._tasks.close()
        if self._consumer is not None:
            await self._consumer.close()
        if self._producer is not None:
            await self._producer.close()

    # -- on the connector's thread --------------------------------------------------------------------------------

    def poll(self) -> Message | None:
        """Return the next task, or None if none arrives within `_WAIT_S`."""
        if not self._is_asked_for:
            self._is_asked_for = True
            self._core.mailbox.post(self._wanted.set)
        try:
            task = self._taken.get(timeout=_WAIT_S)
        except queue.Empty:
            return None
        self._is_asked_for = False
        return task

    def publish(self, tasks: Sequence[bytes], event: str, is_stopping: Callable[[], bool]) -> None:
        """Store tasks, and return when they are durable.

        Raises:
            InstanceStopping: the instance is stopping.
            MagnetarError: the broker rejects a task.
        """
        self.wait_for(self._store(tasks, event), is_stopping)

    def wait_for(self, work: Coroutine[Any, Any, None], is_stopping: Callable[[], bool]) -> None:
        """Wait until a coroutine that stores tasks is done; raises the same errors as `publish`."""
        storing = asyncio.run_coroutine_threadsafe(work, self._core.loop)
        while not is_stopping():
            try:
                storing.result(_WAIT_S)
            except NotYet:
                if storing.done():
                    raise
            else:
                return
        storing.cancel()
        raise InstanceStopping

    async def _store(self, tasks: Sequence[bytes], event: str) -> None:
        properties = {_EVENT: event, _TIME: str(time.time_ns() // 1_000_000)}
        producer = await self._open_producer()
        stored: list[asyncio.Future[Any]] = []
        for task in tasks:
            await producer.ready()
            stored.append(producer.send_nowait(task, properties=properties))
        await asyncio.gather(*stored)

    async def store_again(self, task: bytes, again: Again) -> None:
        """Requeue a failed task after the others.

        Raises:
            MagnetarError: the broker rejects the task.
        """
        producer = await self._open_producer()
        await producer.send(task, properties=again.properties, deliver_at_ms=again.due_ms)

    async def _open_producer(self) -> Any:
        if self._producer is None:
            config = ProducerConfig(batching=False, send_timeout_ms=0, guard=self._core.guard)
            self._producer = await self._core.client.create_producer(self._topic, config)
        return self._producer


class TaskReader(Source):
    """A batch source with the interface of a source; used on the connector's thread."""

    def __init__(
        self, batch: BatchSource, trigger: Trigger | None, topic: TaskTopic, version: int, failed: FailedTasks
    ) -> None:
        """Create a reader.

        Args:
            batch: the batch source.
            trigger: decides when to discover tasks; None in instances that do not discover tasks.
            topic: topic of the tasks.
            version: version of the source's record.
            failed: handles tasks that cannot be read.
        """
        self._batch = batch
        self._trigger = trigger
        self._topic = topic
        self._version = version
        self._failed = failed
        self._letters: list[PublishRequest] = []
        self._times_away = 0
        self._is_taken_over = False
        self._session: ConnectorSession
        self._log: logging.Logger
        self._task: Message | None = None
        self._is_prepared = False
        self._done: Message | None = None
        self._discovered: int | None = None
        self._due_s: float | None = None

    def use(self, session: ConnectorSession) -> None:
        """Set the session that calls the connector's methods."""
        self._session = session

    def open(self, config: Any, context: ConnectorContext) -> None:
        """Open the batch source, and plan the next discovery."""
        self._log = context.logger
        if not self._is_taken_over:
            self._is_taken_over = True
            self._failed.open()
        self._is_prepared = False  # the current task is restarted
        self._discovered = (context.position or {}).get("discovered")
        if self._due_s is None:  # a failed discovery remains due
            self._plan()
        self._session.run(self._batch.open, config, context)

    def close(self) -> None:
        """Close the batch source."""
        self._session.run(self._batch.close)

    def read(self) -> Read:
        """Return records of the current task or the next one, or None."""
        if self._trigger is not None and self._discover_if_due(self._trigger):
            return None  # so that the position is saved before a task can end the instance
        if self._task is None:
            self._task = self._topic.poll()
            self._is_prepared = False
            self._times_away = 0
            if self._task is not None and (reason := self._failed.begin(self._task)):
                self._set_aside(self._task, reason)
        if self._task is None:
            return None
        try:
            found = self._read_task(self._task)
        except NOT_OF_ONE_MESSAGE:
            raise
        except AWAY as error:
            self._times_away += 1
            if self._times_away < AWAY_MAX:
                raise
            self._set_aside(self._task, text_of(error), is_counted=False)
            return None
        except BaseException as error:  # noqa: BLE001  an exception of user code fails only its task
            self._set_aside(self._task, text_of(error))
            return None
        if found is None:
            self._done, self._task = self._task, None
            self._failed.end()
        return found

    def _read_task(self, task: Message) -> Read:
        if not self._is_prepared:
            self._session.run(self._batch.prepare, task.data)
            self._is_prepared = True
        try:
            found: Read = self._session.run(self._batch.read)
        except EndOfInput:
            return None
        return found

    def _set_aside(self, task: Message, reason: str, *, is_counted: bool = True) -> None:
        """Requeue or dead-letter a task, and reopen the source for the others."""
        decided = self._failed.decide(task, reason, is_counted=is_counted)
        if isinstance(decided, Again):
            self._topic.wait_for(self._topic.store_again(task.data, decided), lambda: self._session.is_stopping)
        else:
            self._letters = decided
        self._done, self._task = task, None
        self._failed.end()
        self._session.reopen()  # the source may be anywhere in the task

    def letters(self) -> list[PublishRequest]:
        """Return and clear the dead letters of a task that the last read gave up on."""
        letters, self._letters = self._letters, []
        return letters

    def wrong(self, error: Exception) -> None:
        """Record that the instance ends because of the current task's records."""
        if self._task is not None:
            self._failed.died(text_of(error))

    def finished(self) -> Callable[[], None] | None:
        """Return the callback for when all records of a task that has ended are durable, or None."""
        task, self._done = self._done, None
        return None if task is None else lambda: self._topic.done(task)

    def snapshot(self) -> Position:
        """Return the version of the first discovery as the position, or None."""
        return None if self._discovered is None else {"discovered": self._discovered}

    def _discover_if_due(self, trigger: Trigger) -> bool:
        """Discover tasks if due, and return whether discovery was due."""
        is_first = trigger.is_first and self._discovered != self._version
        if not is_first and (self._due_s is None or time.time() < self._due_s):
            return False
        found: Iterable[bytes] = self._session.run(self._batch.discover)
        tasks = [task.encode() if isinstance(task, str) else bytes(task) for task in found]
        self._topic.publish(tasks, "start" if is_first else "trigger", lambda: self._session.is_stopping)
        self._log.info("discovered %d tasks", len(tasks))
        if is_first:
            self._discovered = self._version
        self._plan()
        return True

    def _plan(self) -> None:
        """Plan the next discovery; times that pass during a discovery are skipped."""
        self._due_s = None if self._trigger is None else self._trigger.next_after(time.time())
