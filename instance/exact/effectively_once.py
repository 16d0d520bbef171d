"""Settlement of EFFECTIVELY_ONCE: connects partitions, state and outputs; `activation` acknowledges input.

    input → activation → function's thread → result ─ direct ────────────────────→ output → receipt → acknowledgement
                                                    └ committer → state store ──→ output → receipt → acknowledgement

A result is sent *directly* while the function only returns messages for one unpartitioned topic: the broker's
deduplication alone makes them exact, because the same input always has the same sequence id. As soon as a result needs
more (state, other topics, several entries), all later results are committed to the state store, the *outbox*: the
result of an input is then fixed, and publishing it is retried until it succeeds.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from threading import get_ident
from typing import cast

from ...api.message_id import FunctionMessageId
from ...api.serde import SerDe
from ...client.config import ProducerConfig
from ...client.consumers.received import ReceivedEntry
from ...client.lock import Lock
from ...errors import InvalidConfig, MagnetarError
from ...wire.position import Position
from ...wire.topic_name import parse_topic_name
from ..core import InstanceCore
from ..endpoint_settings import compression_of, consumer_config, producer_config, splits_keys, subscription_of
from ..function_thread import Calls, Item
from ..identity import incarnation_of, producer_name, table_of
from ..publish_request import PublishRequest
from ..state.session import StateSession, outside_of_call
from ..unit import HeldEntries
from ..values.endpoints import SchemaEndpoints
from .activation import HELD_MESSAGES_MAX, Activation
from .committer import ExactState
from .entries import EntryMaker
from .flow import ResultFlow
from .partition import InputPartition, open_all
from .results import PUBLISHES_WITH_INPUT, ResultMaker
from .steering import PartitionSteering
from .topics import OutputTopics
from .work import Result

log = logging.getLogger(__name__)

_PARTITIONS_S = 60.0


class EffectivelyOnce:
    """Settlement that commits or sends each result exactly once.

    Attributes:
        endpoints: opens outputs.
        admin_url: URL of the broker's REST interface, empty if unused.
        credentials: credentials for it.
        guard: guard of all producers and consumers; None without an instance lock.
        held: limits the entries in progress.
        committer: commits results; None without a state store.
        direct_topic: full name of the output topic if outputs may be sent to it directly, otherwise empty.
        flow: receives completed results.
        process: passes entries to the function's thread.
        end: ends the instance with a reason.
    """

    def __init__(self, core: InstanceCore) -> None:
        """Create the settlement without opening anything.

        Raises:
            InvalidConfig: the state store's URL is invalid.
        """
        spec = core.spec
        self._core = core
        self.end = core.end
        self.flow = ResultFlow(core, self._commit)
        self._topics = OutputTopics(core.endpoints, spec.admin_url, spec.credentials, partial(core.report, "ERROR"))
        self._state = self._open_state()
        self.maker = self._make_maker()
        self._partitions: dict[str, InputPartition] = {}
        self._serdes: dict[str, SerDe] = {}
        self._consumer_suffix = f"{random.getrandbits(32):08x}"
        self.steering = PartitionSteering(core, self._partitions)
        self._moved_back: set[tuple[str, Position]] = set()
        self.process: Callable[[Item], None]
        self.endpoints = core.endpoints
        self.admin_url = spec.admin_url
        self.credentials = spec.credentials
        self.guard = core.guard
        self.held = HeldEntries(HELD_MESSAGES_MAX)
        self.committer = None if self._state is None else self._state.committer
        self.direct_topic = ""

    def _make_maker(self) -> ResultMaker:
        spec = self._core.spec
        output, compression = spec.details.sink.topic, compression_of(spec)
        self._entries = EntryMaker(output, compression, self._topics.partitions_of, splits_keys=splits_keys(spec))
        self._entries.encryption = lambda: self._core.encryption.sealing
        return ResultMaker(self._entries, self._state is not None, self.flow.gate, self._ship, self._skip_soon)

    def _open_state(self) -> ExactState | None:
        core, spec = self._core, self._core.spec
        if not spec.state_url:
            return None
        table, incarnation = table_of(spec.metadata), incarnation_of(spec.metadata)
        return ExactState(spec.state_store, table, spec.key, incarnation, core.report, self.flow.committed)

    # -- opening and closing --------------------------------------------------------------------------------------

    def session(self) -> StateSession | None:
        """Return the function's state, or None without a state store."""
        self.maker.session = None if self._state is None else self._state.session
        return self.maker.session

    async def open(self, calls: Calls) -> None:
        """Open inputs and outputs."""
        core, details = self._core, self._core.spec.details
        self._serdes = calls.serdes
        core.opening = "keys of producerConfig.cryptoConfig"
        await core.encryption.open_sealing()
        if calls.has_output:
            core.opening = f"output topic {details.sink.topic}"
            await self._prepare_output(details.sink.topic)
        for topic in details.source.inputSpecs:
            core.opening = f"input topic {topic}"
            await self._subscribe(topic)

    async def _prepare_output(self, topic: str) -> None:
        partitions = await self._topics.prepare(topic)
        if isinstance(self.endpoints, SchemaEndpoints):
            await self.endpoints.register_output(topic)
            self._entries.schema_version = self.endpoints.output_version
        if partitions == (parse_topic_name(topic).text,):
            self.direct_topic = partitions[0]
            return
        if self._state is None:
            raise InvalidConfig(
                f"{topic} has {len(partitions)} partitions, which requires a state store with EFFECTIVELY_ONCE: set"
                " stateStorageServiceUrl, or use an output topic without partitions"
            )
        self.must_commit()

    async def _subscribe(self, topic: str) -> list[InputPartition]:
        """Subscribe to the new partitions of an input topic, and return them."""
        spec = self._core.spec
        names = [name for name in await self.endpoints.partitions(topic) if name not in self._partitions]
        config = self._core.encryption.reading(consumer_config(spec, topic), topic)
        size = min(config.receiver_queue_size, config.max_receiver_queue_size_across_partitions // max(1, len(names)))
        name = f"{spec.key}-{self._consumer_suffix}"
        size_bytes = -(-config.receiver_queue_bytes // max(1, len(names)))
        config = replace(config, receiver_queue_size=size, receiver_queue_bytes=size_bytes)
        config = replace(config, name=name, ack_receipts=True, guard=self.guard)
        serde = self._serdes[topic]
        made = [InputPartition(self, name, serde, producer_name(spec, name)) for name in names]
        for partition in made:
            self._partitions[partition.topic] = partition
        try:
            await open_all(made, subscription_of(spec), config)
        except MagnetarError:
            for partition in made:  # so that the next check opens them again
                del self._partitions[partition.topic]
            raise
        return made

    def start(self, process: Callable[[Item], None]) -> None:
        """Start taking input."""
        self.process = process
        self._core.tasks.start(self._follow_partitions(), "follow partitions", self._core.failed)
        for partition in self._partitions.values():
            self._serve(partition)

    def _serve(self, partition: InputPartition) -> None:
        self._core.tasks.start(partition.run(), f"serve {partition.topic}", self._core.failed)

    async def _follow_partitions(self) -> None:
        """Subscribe to new partitions of the inputs, and process them."""
        spec = self._core.spec
        while True:
            await asyncio.sleep(_PARTITIONS_S)
            for topic in spec.details.source.inputSpecs:
                try:
                    for partition in await self._subscribe(topic):
                        self._serve(partition)
                except MagnetarError as error:
                    log.warning("%s: cannot check for new partitions of %s: %s", spec.key, topic, error)

    def trouble(self) -> str:
        """Return what prevents the instance from continuing, or an empty string."""
        troubles = ["" if self._state is None else self._state.trouble()]
        troubles += [partition.waits_for for partition in list(self._partitions.values())]
        return next(filter(None, [*troubles, self.steering.paused()]), "")

    def tick(self) -> None:
        """Clear the outboxes of idle partitions."""
        for partition in self._partitions.values():
            partition.clear_outbox()

    def request_stop(self) -> None:
        """End all waits of the function's thread."""
        self.flow.gate.close()
        self._topics.stop()
        if self._state is not None:
            self._state.stop_function()

    async def settle(self, unprocessed: Sequence[Item]) -> None:
        """Wait until results are durable and acknowledged."""
        for source, entry in unprocessed:
            cast(Activation, source).skipped(entry)
        if not self._core.is_broken:
            await asyncio.gather(*(partition.settle() for partition in self._partitions.values()))

    async def close(self) -> None:
        """Abandon work in progress, and close inputs and outputs."""
        self.flow.close()
        if self._state is not None:
            await asyncio.to_thread(self._state.close)
        await asyncio.gather(*(partition.close() for partition in self._partitions.values()))

    # -- called by the function's thread --------------------------------------------------------------------------

    def _ship(self, results: Sequence[Result]) -> None:
        for result in results:
            self._core.mailbox.post(partial(self.flow.take, result))

    def _skip_soon(self, source: Activation, entry: ReceivedEntry) -> None:
        self._core.mailbox.post(partial(source.skipped, entry))

    def publish(self, request: PublishRequest) -> None:
        """Accept a message for any topic, published by the function's thread."""
        if get_ident() != self._core.thread_id:
            raise InvalidConfig(outside_of_call("publish", PUBLISHES_WITH_INPUT))
        if "sequence_id" in request.options:
            raise InvalidConfig(
                "message_conf key 'sequence_id' cannot be used with EFFECTIVELY_ONCE, which numbers outputs by their"
                " input: remove it"
            )
        self._topics.partitions_of(request.topic)  # raises errors in the function's call
        self.maker.publish(request)

    def acknowledge(self, message_id: FunctionMessageId, topic: str) -> None:
        """Raise InvalidConfig: inputs are acknowledged with their outputs."""
        raise InvalidConfig(
            "context.ack cannot be used with EFFECTIVELY_ONCE, which acknowledges inputs with their outputs: use the"
            " guarantee MANUAL"
        )

    # -- called by partitions -------------------------------------------------------------------------------------

    def create_lock(self, producer_name: str) -> Lock | None:
        """Return the lock of a partition; None if no other worker can process it."""
        spec = self._core.spec
        if not spec.locks_topic:
            return None
        return self._core.client.create_lock(spec.locks_topic, producer_name, f"{spec.key} on {spec.worker_id}")

    def output_config(self) -> ProducerConfig:
        """Return the producer config of outputs."""
        return self._core.encryption.writing(replace(producer_config(), guard=self.guard))

    def resumed(self, topic: str) -> asyncio.Event:
        """Return an event that is set while entries may be taken from a partition."""
        return self.steering.resumed(topic)

    def _commit(self, result: Result) -> None:
        assert self.committer is not None
        self.committer.commit(result.source.ledger, result)

    def must_commit(self) -> None:
        """Stop sending directly, because results have been committed to the state store."""
        self.maker.needs_commit = True

    def moved_back(self, topic: str, first: Position, done: Position) -> None:
        """Report that the subscription's cursor was moved back."""
        if (topic, done) in self._moved_back:
            return
        self._moved_back.add((topic, done))
        self._core.system_failed(
            f"the cursor of subscription {subscription_of(self._core.spec)} on {topic} was moved back to"
            f" {first}, or the broker lost acknowledgements: skipping messages up to {done}, which have already been"
            " processed; to process them again, use `functions reset-cursor`"
        )
