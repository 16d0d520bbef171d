"""One instance at work under EFFECTIVELY_ONCE; the same face as `runtime.pipeline.Pipeline`.

    consumer → tenure → function's thread → result ─ direct ────────────────────→ producer → receipt → acknowledgement
                                                   └ committer → state store ──→ producer → receipt → acknowledgement

A result goes *directly* while the function does nothing but return messages for one topic without partitions: the
broker's deduplication alone makes them exact, as the same input always has the same sequence id. As soon as there is
more (state, other topics, several entries), results go through a commit of the state store, for good: what the function
made of an input is then decided once, and published as often as it takes.

Everything here runs on the client's event loop but the methods of `Listener` and `Outside`, which the function's thread
calls; they leave something in the mailbox.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
import time
from dataclasses import replace
from functools import partial
from typing import cast

from ...api.message_id import FunctionMessageId
from ...api.serde import SerDe
from ...client.client import AsyncClient
from ...client.consumers.received import ReceivedEntry
from ...errors import InvalidConfig, MagnetarError
from ...state.naming import table_of
from ...tasks.supervised import TaskSet
from ...wire.position import Position
from ...wire.topic_name import parse_topic_name
from ..batch_call import BatchCall
from ..details import compression_of, consumer_config, subscription_of
from ..function_context import FunctionContext
from ..held_entries import HeldEntries
from ..instance_lock import InstanceLock
from ..loading.loader import Home, load_function, load_serde
from ..logs.file import InstanceLog
from ..logs.topic import LogTopic
from ..mailbox import Mailbox
from ..markers import HeaderMaker
from ..publish_request import PublishRequest
from ..spec import InstanceSpec
from ..state.session import outside_of_call
from ..stats import InstanceStats, encodable, reason_of
from .activation import HELD_MESSAGES_MAX, Tenure
from .entries import EntryMaker
from .flow import ResultFlow
from .identity import life_of, producer_name
from .partition import InputPartition, open_all
from .state import ExactState
from .thread import ExactThread, Loaded, PoisonMessage
from .topics import OutputTopics
from .work import Result, Source

log = logging.getLogger(__name__)

FAILURE_GRACE_S = 2.0  # for the function to return when the instance cannot go on
SETTLE_S = 3.0  # for what is on its way when the instance is stopped
_TICK_S = 1.0
_PARTITIONS_S = 60.0


class ExactPipeline:
    """One instance; made, run once with `run`, and stopped with `stop`.

    Attributes:
        stats: its counters.
        is_running: whether messages are being processed.
        abandoned: whether the function did not return when it was told to stop.
        grace_s: how long it was given for that.
        client, admin_url, guard, locks_topic, held, committer, flow, direct_topic, owner: see `tenure.Workplace`.
    """

    def __init__(self, spec: InstanceSpec, client: AsyncClient, home: Home, instance_log: InstanceLog) -> None:
        """Prepare, on the client's event loop.

        Args:
            spec: what to run.
            client: connects to the broker; not closed here.
            home: where the function lives.
            instance_log: takes what the instance has to say; not closed here.
        """
        self.stats = InstanceStats(time.monotonic())
        self.stats.trouble = self._trouble
        self.is_running = False
        self.abandoned = False
        self.grace_s = FAILURE_GRACE_S
        self._spec = spec
        self._home = home
        self._log = instance_log
        self._loop = asyncio.get_running_loop()
        self._mailbox = Mailbox(self._action_failed)
        self._lock = InstanceLock(spec, client)
        self._log_topic = LogTopic(spec, instance_log) if spec.details.logTopic else None
        self.flow = ResultFlow(
            self._mailbox, self._commit, self.end, lambda text: self._user_failed(f"callback of publish failed: {text}")
        )
        self._topics = OutputTopics(client, spec.admin_url, partial(self._state_said, "ERROR"))
        self._state = self._open_state()
        self._thread = ExactThread(f"function {spec.key}", self._load, self, self.stats, self.flow.gate)
        self._loaded: asyncio.Future[Loaded] = self._loop.create_future()
        self._ended: asyncio.Future[str] = self._loop.create_future()
        self._thread_ended = asyncio.Event()
        self._partitions: dict[str, InputPartition] = {}
        self._tasks = TaskSet(f"instance {spec.key}")
        self._serdes: dict[str, SerDe] = {}
        self._consumer_suffix = f"{random.getrandbits(32):08x}"
        self._moved_back: set[tuple[str, Position]] = set()
        self.client = client
        self.admin_url = spec.admin_url
        self.guard = self._lock.guard
        self.locks_topic = spec.locks_topic
        self.held = HeldEntries(HELD_MESSAGES_MAX)
        self.committer = None if self._state is None else self._state.committer
        self.direct_topic = ""
        self.owner = f"{spec.key} on {spec.worker_id}"

    def _open_state(self) -> ExactState | None:
        spec = self._spec
        if not spec.state_url:
            return None
        life = life_of(spec.metadata)
        return ExactState(
            spec.state_url, table_of(spec.metadata), spec.key, life, self._state_said, self.flow.committed
        )

    # -- life -----------------------------------------------------------------------------------------------------

    async def run(self) -> str:
        """Work until stopped, and return why it ended: empty if by `stop`, else the reason with its traceback.

        Cancellation: closes the instance without waiting for the function.
        """
        try:
            self._thread.start()
            reason = await self._connect()
            if reason is None:
                self._tasks.start(self._tick(), "tick", self._part_failed)
                self._tasks.start(self._lock.wait_failed(), "lock", self._part_failed)
                self._tasks.start(self._follow_partitions(), "follow partitions", self._part_failed)
                for partition in self._partitions.values():
                    self._serve(partition)
                self.is_running = True
                reason = await asyncio.shield(self._ended)
            await self._wind_down()
            return reason
        finally:
            await self._tasks.close()
            self._request_stop()
            await self._close()

    def _serve(self, partition: InputPartition) -> None:
        self._tasks.start(partition.run(), f"serve {partition.topic}", self._part_failed)

    async def _connect(self) -> str | None:
        """Wait for the function to be loaded and subscribe to its inputs; return why that failed, or None."""
        await asyncio.wait((self._loaded, self._ended), return_when=asyncio.FIRST_COMPLETED)
        if self._ended.done():
            return self._ended.result()
        details = self._spec.details
        what = f"lock of {self._spec.key}"
        try:
            await self._lock.acquire(self._ended)
            if self._ended.done():
                return self._ended.result()
            if self._log_topic is not None:
                what = f"log topic {details.logTopic}"
                await self._log_topic.open(self.client, self.guard)
            if details.sink.topic:
                what = f"output topic {details.sink.topic}"
                await self._prepare_output(details.sink.topic)
            for topic in details.source.inputSpecs:
                what = f"input topic {topic}"
                await self._subscribe(topic)
        except MagnetarError as error:
            return f"{what}: {type(error).__name__}: {error}"
        return self._ended.result() if self._ended.done() else None

    async def _prepare_output(self, topic: str) -> None:
        partitions = await self._topics.prepare(topic)
        if partitions == (parse_topic_name(topic).text,):
            self.direct_topic = partitions[0]
            return
        if self._state is None:
            raise InvalidConfig(
                f"{topic} has {len(partitions)} partitions, and EFFECTIVELY_ONCE commits outputs for several through"
                " the state store; set stateStorageServiceUrl, or use an output topic without partitions"
            )
        self.must_commit()

    async def _subscribe(self, topic: str) -> list[InputPartition]:
        """Subscribe to the partitions of an input topic that are not known yet, and return them."""
        spec = self._spec
        names = [name for name in await self.client.partitions(topic) if name not in self._partitions]
        config = consumer_config(spec, topic)
        size = min(config.receiver_queue_size, config.max_receiver_queue_size_across_partitions // max(1, len(names)))
        name = f"{spec.key}-{self._consumer_suffix}"
        config = replace(config, name=name, receiver_queue_size=size, ack_receipts=True, guard=self.guard)
        serde = self._serdes[topic]
        made = [InputPartition(self, name, serde, producer_name(spec, name)) for name in names]
        for partition in made:
            self._partitions[partition.topic] = partition
        try:
            await open_all(made, subscription_of(spec), config)
        except MagnetarError:
            for partition in made:  # looked for again, or nobody would ever process them
                del self._partitions[partition.topic]
            raise
        return made

    async def _follow_partitions(self) -> None:
        """Process partitions that are added to the inputs."""
        while True:
            await asyncio.sleep(_PARTITIONS_S)
            for topic in self._spec.details.source.inputSpecs:
                try:
                    for partition in await self._subscribe(topic):
                        self._serve(partition)
                except MagnetarError as error:
                    log.warning("%s: cannot look for new partitions of %s: %s", self._spec.key, topic, error)

    def stop(self, grace_s: float) -> None:
        """Ask `run` to end after the entry at hand, or without the function if that takes longer than ``grace_s``."""
        self.grace_s = grace_s
        self.end("")

    def end(self, reason: str) -> None:
        """Stop the instance, for a reason that is shown."""
        if not self._ended.done():
            self._ended.set_result(encodable(reason))

    async def _wind_down(self) -> None:
        """Let the function finish its message, and what it made reach the broker."""
        await self._tasks.close()
        self._request_stop()
        try:
            async with asyncio.timeout(self.grace_s):
                await self._thread_ended.wait()
        except TimeoutError:
            self.abandoned = True
            return
        for source, entry in self._thread.unprocessed():
            cast(Tenure, source).skipped(entry)
        if self.flow.is_broken:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_S):
                await asyncio.gather(*(partition.settle() for partition in self._partitions.values()))

    def _request_stop(self) -> None:
        self.is_running = False
        self._thread.request_stop()
        self._topics.stop()
        if self._state is not None:
            self._state.stop_function()

    async def _close(self) -> None:
        self.flow.close()
        if self._state is not None:
            await asyncio.to_thread(self._state.close)
        await asyncio.gather(*(partition.close() for partition in self._partitions.values()))
        if self._log_topic is not None:
            await self._log_topic.close()
        await self._lock.close()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self.stats.roll(time.monotonic())
            self._log.check_size()
            for partition in self._partitions.values():
                partition.clear_outbox()

    def _part_failed(self, error: BaseException) -> None:
        self.end(_reason(error))

    def _action_failed(self, error: Exception) -> None:
        self.flow.is_broken = True
        self.end(_reason(error))

    def _trouble(self) -> str:
        """Return what the instance waits for, empty if for nothing (from any thread)."""
        troubles = [self._lock.trouble(), "" if self._state is None else self._state.trouble()]
        troubles += [partition.waits_for for partition in list(self._partitions.values())]
        return next(filter(None, troubles), "")

    # -- what the pipeline is made of -----------------------------------------------------------------------------

    def _load(self) -> Loaded:
        """Make the function callable (on the function's thread)."""
        spec, details = self._spec, self._spec.details
        self._home.enter_thread()
        self._serdes = {
            topic: load_serde(self._home, given.serdeClassName) for topic, given in details.source.inputSpecs.items()
        }
        output_serde = load_serde(self._home, details.sink.serDeClassName)
        loaded = load_function(spec, self._home)
        context: FunctionContext | None = None
        session = None
        if loaded.takes_context:
            session = None if self._state is None else self._state.session
            logger = logging.getLogger(spec.key)
            context = FunctionContext(spec, self.stats, self, logger, partial(load_serde, self._home), session)
        return Loaded(
            batch_call=BatchCall(loaded.call, context, output_serde),
            context=context,
            headers=HeaderMaker(details.sink.forwardSourceMessageProperty),
            has_output=bool(details.sink.topic),
            session=session,
            maker=EntryMaker(details.sink.topic, compression_of(spec), self._topics.partitions_of),
            can_commit=self._state is not None,
        )

    # -- called by the function's thread --------------------------------------------------------------------------

    def loaded(self, loaded: Loaded) -> None:
        """See `thread.Listener`."""
        self._mailbox.post(partial(self._loaded.set_result, loaded))

    def ship(self, result: Result) -> None:
        """See `thread.Listener`."""
        self._mailbox.post(partial(self.flow.take, result))

    def skipped(self, source: Source, entry: ReceivedEntry) -> None:
        """See `thread.Listener`."""
        self._mailbox.post(partial(cast(Tenure, source).skipped, entry))

    def reported(self, text: str) -> None:
        """See `thread.Listener`."""
        self._log.write("ERROR", text)

    def ended(self, error: BaseException | None) -> None:
        """See `thread.Listener`."""
        self._home.leave_thread()
        self._mailbox.post(partial(self._thread_has_ended, "" if error is None else _reason(error)))

    def publish(self, request: PublishRequest) -> None:
        """See `function_context.Outside`."""
        if threading.get_ident() != self._thread.ident:
            why = "under EFFECTIVELY_ONCE what is published belongs to the input at hand"
            raise InvalidConfig(outside_of_call("publish", why))
        if "sequence_id" in request.options:
            raise InvalidConfig(
                "message_conf key 'sequence_id' cannot be set under EFFECTIVELY_ONCE, which numbers outputs by their"
                " input; leave it out"
            )
        self._topics.partitions_of(request.topic)  # raises where the function can see it
        self._thread.published.append(request)

    def acknowledge(self, message_id: FunctionMessageId, topic: str) -> None:
        """See `function_context.Outside`."""
        raise InvalidConfig(
            "context.ack is not possible under EFFECTIVELY_ONCE, which acknowledges inputs with their outputs; use the"
            " guarantee MANUAL"
        )

    def _user_failed(self, text: str) -> None:
        self.stats.user_exception(text, _now_ms())
        self._log.write("ERROR", text)

    def _state_said(self, level: str, text: str) -> None:
        if level == "ERROR":
            self.stats.system_exception(text, _now_ms())
        self._log.write(level, text)

    def _thread_has_ended(self, reason: str) -> None:
        self._thread_ended.set()
        self.end(reason)

    def process(self, source: Source, entry: ReceivedEntry) -> None:
        """See `tenure.Workplace`."""
        self._thread.inbox.put((source, entry))

    def _commit(self, result: Result) -> None:
        assert self.committer is not None
        self.committer.commit(cast(Tenure, result.source).ledger, result)

    def must_commit(self) -> None:
        """See `tenure.Workplace`."""
        self._thread.needs_commit = True

    def moved_back(self, topic: str, first: Position, done: Position) -> None:
        """See `tenure.Workplace`."""
        if (topic, done) in self._moved_back:
            return
        self._moved_back.add((topic, done))
        text = (
            f"the cursor of subscription {subscription_of(self._spec)} on {topic} was moved back to {_shown(first)}, or"
            f" the broker lost acknowledgements: everything up to {_shown(done)} is done, and under EFFECTIVELY_ONCE"
            " nothing is done twice, so the messages between are skipped; to process them again, use"
            " `functions reset-cursor`"
        )
        self.stats.system_exception(text, _now_ms())
        self._log.write("ERROR", text)


def _reason(error: BaseException) -> str:
    return str(error) if isinstance(error, PoisonMessage) else reason_of(error)


def _shown(position: Position) -> str:
    return f"{position.ledger_id}:{position.entry_id}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
