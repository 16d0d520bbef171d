"""Creates the plan of a run: a new plan for the backlog, or an unfinished plan checked against the current topics.

The backlog starts at the positions of the function's durable subscriptions, which this module also reads and moves. It
attaches a consumer only for these requests and never receives messages. The consumer is exclusive, so that no other
consumer uses the subscription meanwhile, and because shared consumers cannot acknowledge cumulatively.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from ...config.conversion import runtime_options
from ...errors import ConsumerBusy, InvalidConfig, TopicNotFound, broker_error
from ...instance.spec import InstanceSpec
from ...wire import pulsar_api_pb2 as pb
from ...wire.position import EARLIEST, Position
from ...wire.topic_name import parse_topic_name
from ..source.connection import Routes
from ..source.ranges import TopicRange
from ..source.reader import CONSUMER_ID, BlockingConsumer
from ..source.topic_metadata import backlog
from .plans import Plan, PlanStore, make_tasks
from .retries import with_retries
from .spark_job import failed_with

SHUFFLES_PER_CORE = 2
_T = TypeVar("_T")


class Planner:
    """Creates plans for one function from the state of its topics."""

    def __init__(
        self, spec: InstanceSpec, store: PlanStore, say: Callable[[str], None], check: Callable[[], None]
    ) -> None:
        """Create the planner.

        Args:
            spec: the function.
            store: plan store of the function.
            say: writes a line to the function's log.
            check: raises once the run is cancelled.
        """
        self._spec = spec
        self._store = store
        self._say = say
        self._check = check
        self._routes = Routes(spec.service_url, spec.client_security)

    def unfinished(self, plan: Plan) -> Plan:
        """Return the unfinished plan of an earlier run, adapted to the current output topic.

        Partitions added since then receive no messages from the plan, because repeated messages must go to the same
        partitions. A topic that was recreated, or replaced by an update, does not contain any of the plan's messages
        yet.

        Raises:
            RunFailed: entries of the plan no longer exist, so a task would wait for them forever.
            RunFenced: another driver has taken over.
            MagnetarError: a broker or the state store does not answer.
        """
        self._check_there(plan)
        output = self._spec.details.sink.topic
        there = self._partitions_of_output()
        if not output or (plan.outputs <= there and bool(plan.outputs) == bool(there)):
            return plan
        self._say(
            f"plan {plan.number} was created for an output topic with {plan.outputs} partitions, but "
            f"{output} has {there}: treating it as a different topic and publishing all outputs of the plan to it"
        )
        fitted = replace(plan, outputs=there)
        self._store.correct(fitted)
        return fitted

    def _check_there(self, plan: Plan) -> None:
        ranges: dict[str, list[TopicRange]] = {}
        for task in plan.tasks:
            ranges.setdefault(task.wanted.topic, []).append(task.wanted)
        for topic, wanted in ranges.items():
            start, end = wanted[0].start, wanted[-1].end
            there = self._backlog(topic, EARLIEST)
            if there is None or there.start > start or there.end < end:
                holds = "nothing" if there is None else f"{there.start} to {there.end}"
                raise failed_with(
                    plan,
                    f"entries {start} to {end} of {topic} were planned but no longer all exist: the "
                    f"topic holds {holds}; was it trimmed or deleted?",
                )

    def backlogs(self, subscriptions: Mapping[str, Subscription]) -> list[TopicRange]:
        """Return the unread range of each subscription, omitting empty topics.

        Raises:
            MagnetarError: a broker does not answer.
        """
        wholes: list[TopicRange] = []
        for topic, subscription in subscriptions.items():
            done = self._store.record.ends.get(topic)
            stands = subscription.position(is_known=done is not None)
            if done is not None and stands > done:
                self._say(
                    f"the subscription on {topic} is at {stands}, but the last run reached {done}: "
                    "the entries between them were skipped or expired on the broker and will not be processed"
                )
            whole = self._backlog(topic, max(stands, done or stands))
            if whole is not None:
                wholes.append(whole)
        return wholes

    def plan(self, wholes: list[TopicRange], run_id: str, cores: int) -> Plan:
        """Return a plan that splits the backlogs into tasks.

        Args:
            wholes: one range per topic, at least one.
            run_id: id of the run.
            cores: number of tasks that can run concurrently.

        Raises:
            MagnetarError: a broker does not answer.
        """
        details = self._spec.details
        return Plan(
            number=self._store.next_number,
            run_id=run_id,
            tasks=make_tasks(
                wholes,
                cores=cores,
                min_tasks=runtime_options(details.customRuntimeOptions).get("min_partitions"),
                is_ordered=details.retainOrdering or details.retainKeyOrdering,
            ),
            outputs=self._partitions_of_output(),
            shuffles=SHUFFLES_PER_CORE * cores,
        )

    def _partitions_of_output(self) -> int:
        output = self._spec.details.sink.topic
        if not output:
            return 0
        return with_retries(lambda: self._routes.partitions(parse_topic_name(output), makes=True), self._check)

    def _backlog(self, topic: str, done: Position) -> TopicRange | None:
        return with_retries(lambda: backlog(self._routes, topic, done, self._spec.admin_url or None), self._check)


@dataclass(frozen=True)
class Subscription:
    """A durable subscription on one topic; connects for each call.

    Attributes:
        routes: connects to the broker.
        topic: full topic name; of a partition if the topic is partitioned.
        name: subscription name.
        from_earliest: whether a new subscription starts at the first message rather than after the last one.
    """

    routes: Routes
    topic: str
    name: str
    from_earliest: bool

    def position(self, *, is_known: bool = False) -> Position:
        """Return the mark-delete position; create the subscription and the topic if they are missing.

        Args:
            is_known: whether the topic's progress is known from another source, so that a missing subscription must
                have been deleted or expired. It is then recreated at the first entry, so that no entry is skipped.

        Raises:
            MagnetarError: the broker did not answer within `retries.RETRY_DEADLINE_S`, or answered with an error.
        """
        return self._with_retries(self._position, self.from_earliest or is_known, makes_topic=True)

    def move(self, end: Position, check: Callable[[], None]) -> bool:
        """Acknowledge all entries up to and including ``end``; do nothing if they are acknowledged already.

        Args:
            end: last processed entry.
            check: raises if another driver has taken over; called before any change and again once the consumer is
                attached, so that a subscription in use is not moved back.

        Returns: whether the topic exists; a missing topic is not recreated.

        Raises: same as `position`, and exceptions of ``check``.
        """

        def move(consumer: BlockingConsumer) -> None:
            if self._position(consumer) >= end:
                return
            check()
            command = pb.CommandAck(
                consumer_id=CONSUMER_ID,
                ack_type=pb.CommandAck.Cumulative,
                message_id=[pb.MessageIdData(ledgerId=end.ledger_id, entryId=end.entry_id)],
            )
            answer = consumer.connection.request(f"acknowledging {end} of {self.topic}", command)
            if answer.HasField("error"):
                raise broker_error(answer.error, answer.message)

        try:
            self._with_retries(move, True, makes_topic=False, check=check)
        except TopicNotFound:
            return False
        return True

    def _position(self, consumer: BlockingConsumer) -> Position:
        position = consumer.last_message().mark_delete
        if position is not None:
            return position
        raise InvalidConfig(
            f"{consumer.connection.address.physical} does not report the position of subscription "
            f"{self.name} of {self.topic}: use the bundled broker, or Apache Pulsar 2.8 or newer"
        )

    def _with_retries(
        self,
        work: Callable[[BlockingConsumer], _T],
        from_earliest: bool,
        *,
        makes_topic: bool,
        check: Callable[[], None] = lambda: None,
    ) -> _T:
        """Attach the consumer and run ``work``; retry while the broker is unavailable or the subscription is in use."""

        def attempt() -> _T:
            try:
                with contextlib.closing(self.routes.connect_to(self.topic)) as connection:
                    command = pb.CommandSubscribe(
                        topic=self.topic,
                        subscription=self.name,
                        durable=True,
                        initialPosition=pb.CommandSubscribe.Earliest if from_earliest else pb.CommandSubscribe.Latest,
                        force_topic_creation=makes_topic,
                    )
                    consumer = BlockingConsumer(connection, f"subscription {self.name} of {self.topic}", command)
                    result = work(consumer)
                    connection.request("closing the consumer", pb.CommandCloseConsumer(consumer_id=CONSUMER_ID))
                    return result
            except ConsumerBusy as error:
                busy = ConsumerBusy(
                    f"subscription {self.name} of {self.topic} is in use by another consumer: stop that consumer"
                )
                busy.is_final = False  # it may be a dead driver's, whose connection the broker will soon drop
                raise busy from error

        return with_retries(attempt, check)
