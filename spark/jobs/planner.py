"""Makes the plan of a run: a new one for the backlog, or an unfinished one, checked against today's topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ...config.conversion import runtime_options
from ...instance.spec import InstanceSpec
from ...wire.position import EARLIEST, Position
from ...wire.topic_name import parse_topic_name
from ..source.connection import Routes
from ..source.ranges import TopicRange
from ..source.topic_metadata import backlog
from .plans import Plan, PlanStore, make_tasks
from .retries import with_retries
from .run_failure import failed_with
from .subscription import Subscription

SHUFFLES_PER_CORE = 2


class Planner:
    """Makes plans of one function from what its brokers report."""

    def __init__(
        self, spec: InstanceSpec, store: PlanStore, say: Callable[[str], None], check: Callable[[], None]
    ) -> None:
        """Prepare.

        Args:
            spec: of the function.
            store: of its plans.
            say: writes a line into the function's log.
            check: raises once the run is cancelled.
        """
        self._spec = spec
        self._store = store
        self._say = say
        self._check = check
        self._routes = Routes(spec.service_url)

    def unfinished(self, plan: Plan) -> Plan:
        """Return a plan that an earlier run left, for the output topic that there is now.

        Partitions that were added meanwhile get nothing of it, as what it repeats has to go where it went before. A
        topic that was made anew, or is another one since an update, holds nothing of it.

        Raises:
            RunFailed: entries of it are gone; a task would wait for them.
            RunFenced: another driver has taken it over.
            MagnetarError: a broker or the state store does not answer.
        """
        self._check_there(plan)
        output = self._spec.details.sink.topic
        there = self._partitions_of_output()
        if not output or (plan.outputs <= there and bool(plan.outputs) == bool(there)):
            return plan
        self._say(
            f"plan {plan.number} was made for an output topic of {plan.outputs} partitions, {output} has {there}: it is"
            " another topic, and all outputs of the plan are published to it"
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
                    f"entries {start} to {end} of {topic} were planned and are not all there any more: it holds"
                    f" {holds}; was it trimmed, or deleted?",
                )

    def backlogs(self, subscriptions: Mapping[str, Subscription]) -> list[TopicRange]:
        """Return what the subscriptions have before them, topics without anything left out.

        Raises:
            MagnetarError: a broker does not answer.
        """
        wholes: list[TopicRange] = []
        for topic, subscription in subscriptions.items():
            done = self._store.record.ends.get(topic)
            stands = subscription.position(is_known=done is not None)
            if done is not None and stands > done:
                self._say(
                    f"the subscription on {topic} stands at {stands}, the last run reached {done}: what lies between"
                    " was skipped or expired on the broker, and is not processed"
                )
            whole = self._backlog(topic, max(stands, done or stands))
            if whole is not None:
                wholes.append(whole)
        return wholes

    def plan(self, wholes: list[TopicRange], run_id: str, cores: int) -> Plan:
        """Return the plan that cuts backlogs into tasks.

        Args:
            wholes: one for each topic, at least one.
            run_id: of the run that it is for.
            cores: that run tasks at the same time.

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
