"""One run of a Spark function, from the plan to the moved subscription.

    planning    what a run before left unfinished, then: where the subscriptions stand, what lies behind, cut into tasks
    running     the plan is stored; its job runs
    committing  the outputs are stored: note it beside the plan, then move the subscriptions

Whatever happens at any point, the next run goes on from what is stored: a plan that is not done is run again as it is,
one that is done moves the subscriptions again, which does nothing where they stand there already. A driver whose
function was taken over finds another version of the plan, within a second while its job runs, and stops.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pickle import PicklingError
from typing import TYPE_CHECKING

from ...errors import ConnectionLost, MagnetarError
from ...wire.topic_name import parse_topic_name
from ..exact.deduplication import switch_on
from ..exact.identity import life_of
from ..state.client import TableClient
from ..state.naming import table_of
from ..stats import format_error
from .accepted import AcceptedRun
from .cluster import cores_of
from .cursor import PATIENCE_S, PAUSE_S, Subscription
from .job_progress import JobProgress, Work
from .link import Routes
from .plans import Plan, PlanStore, RunFenced, make_tasks
from .progress import RunProgress, add_metrics
from .ranges import Position, TopicRange
from .spark_job import told, watched
from .survey import backlog

if TYPE_CHECKING:
    from pyspark import SparkContext

    from .function_run import SparkFunction
    from .message_job import MessageJob
    from .session import Session

FENCE_PERIOD_S = 1.0
NO_EXECUTORS_S = 5.0
"""A cluster has so long to start executors before the status says what it waits for."""
SHUFFLES_PER_CORE = 2
_OWN_ERROR = re.compile(r"^magnetar\.errors\.(\w+: .*)$", re.MULTILINE)
NOTHING_DONE = Position(-1, -1)


class RunFailed(Exception):
    """The run cannot go on.

    Attributes:
        is_user_error: the function raised.
    """

    def __init__(self, text: str, is_user_error: bool) -> None:
        super().__init__(text)
        self.is_user_error = is_user_error


class RunCancelled(Exception):
    """The run is not wanted any more."""


class PlannedRun:
    """One run."""

    def __init__(self, function: SparkFunction, run_id: str, report: Callable[[RunProgress], None]) -> None:
        """Prepare.

        Args:
            function: to run.
            run_id: names the run.
            report: is told how far it is.
        """
        self._function = function
        self._spec = function.spec
        self._report = report
        self._progress = RunProgress(run_id=run_id, stage="planning")
        self._is_fenced = False
        self._fence_due_s = 0.0
        self._began_s = 0.0
        self._planned = 0  # tasks of the plan at hand
        self._before = Work()  # of the plan that was finished first
        self._tag = f"magnetar {function.spec.key}"
        self._context: SparkContext | None = None
        self._session: Session | None = None

    def stop_jobs(self) -> None:
        """End the jobs that run now; from any thread."""
        if self._context is not None:
            self._context.cancelJobsWithTag(self._tag)

    def run(self) -> RunProgress:
        """Do all of it; whatever goes wrong is in the result."""
        with contextlib.closing(TableClient(self._spec.state_url)) as tables:
            accepted = AcceptedRun(tables, self._spec)
            end = self._guarded(tables, accepted)
            if end.stage != "cancelled":  # the function may go on elsewhere
                accepted.forget()
        return end

    def _guarded(self, tables: TableClient, accepted: AcceptedRun) -> RunProgress:
        try:
            accepted.note(self._progress.run_id)
            self._run(tables)
        except RunCancelled:
            return self._end("cancelled")
        except RunFailed as error:
            return self._end("failed", str(error), is_user_error=error.is_user_error)
        except RunFenced as error:
            return self._end("failed", str(error))
        except MagnetarError as error:
            return self._end("failed", f"{type(error).__name__}: {error}")
        except Exception as error:  # noqa: BLE001  of Spark, or ours: the status is where it is looked for
            return self._end("failed", f"{format_error(error)}")
        return self._end("done")

    def _run(self, tables: TableClient) -> None:
        self._report(self._progress)
        metadata = self._spec.metadata
        store = PlanStore(tables, table_of(metadata), life=life_of(metadata), owner=self._function.owner)
        record = store.load()
        subscriptions = {one.topic: one for one in self._function.subscriptions()}
        self._move(store, subscriptions)
        unfinished = record.open_plan
        if unfinished is not None:
            self._say(f"plan {unfinished.number} of run {unfinished.run_id} is not done and is run again as it is")
            self._check_there(unfinished)
            self._execute(store, self._fitted(store, unfinished), subscriptions, is_repeated=True)
            if unfinished.run_id == self._progress.run_id:
                return
            done = self._progress
            self._before = Work(tasks_done=done.tasks_done, rows=done.rows, metrics=done.metrics)
        self._check_cancelled()
        plan = self._plan(store, subscriptions)
        if plan is None:
            return
        store.begin(plan)
        self._execute(store, plan, subscriptions, is_repeated=False)

    def _fitted(self, store: PlanStore, plan: Plan) -> Plan:
        """Return a plan that an earlier driver made, for the output topic that there is now.

        Partitions that were added meanwhile get nothing of it, as what it repeats has to go where it went before. A
        topic that was made anew, or is another one since an update, holds nothing of it.
        """
        output = self._spec.details.sink.topic
        if not output:
            return plan
        there = Routes(self._spec.service_url).partitions(parse_topic_name(output), makes=True)
        if plan.outputs <= there and bool(plan.outputs) == bool(there):
            return plan
        self._say(
            f"plan {plan.number} was made for an output topic of {plan.outputs} partitions, {output} has {there}: it is"
            " another topic, and all outputs of the plan are published to it"
        )
        fitted = replace(plan, outputs=there)
        store.correct(fitted)
        return fitted

    def _check_there(self, plan: Plan) -> None:
        """Fail at once for entries that are gone since they were planned; a task would wait for them."""
        routes = Routes(self._spec.service_url)
        ranges: dict[str, list[TopicRange]] = {}
        for task in plan.tasks:
            ranges.setdefault(task.wanted.topic, []).append(task.wanted)
        for topic, wanted in ranges.items():
            start, end = wanted[0].start, wanted[-1].end
            there = backlog(routes, topic, NOTHING_DONE, self._spec.admin_url or None)
            if there is None or there.start > start or there.end < end:
                holds = "nothing" if there is None else f"{there.start} to {there.end}"
                raise RunFailed(
                    f"entries {start} to {end} of {topic} were planned and are not all there any more: it holds"
                    f" {holds}; was it trimmed, or deleted?\n{_kept(plan)}",
                    False,
                )

    def _plan(self, store: PlanStore, subscriptions: dict[str, Subscription]) -> Plan | None:
        """Return what to do now, None if there is nothing."""
        from ...api.config_fields import min_partitions

        routes = Routes(self._spec.service_url)
        wholes: list[TopicRange] = []
        for topic, subscription in subscriptions.items():
            done = store.record.ends.get(topic)
            stands = subscription.stand(is_known=done is not None)
            if done is not None and stands > done:
                self._say(
                    f"the subscription on {topic} stands at {stands}, the last run reached {done}: what lies between"
                    " was skipped or expired on the broker, and is not processed"
                )
            whole = backlog(routes, topic, max(stands, done or stands), self._spec.admin_url or None)
            if whole is not None:
                wholes.append(whole)
        if not wholes:
            return None
        details = self._spec.details
        cores = cores_of(self._open())
        output = details.sink.topic
        return Plan(
            number=store.next_number,
            run_id=self._progress.run_id,
            tasks=make_tasks(
                wholes,
                cores=cores,
                min_tasks=min_partitions(details.customRuntimeOptions),
                is_ordered=details.retainOrdering or details.retainKeyOrdering,
            ),
            outputs=routes.partitions(parse_topic_name(output), makes=True) if output else 0,
            shuffles=SHUFFLES_PER_CORE * cores,
        )

    def _open(self) -> SparkContext:
        if self._context is None:
            self._session = self._function.open_session()
            self._context = self._session.spark.sparkContext
        self._check_cancelled()
        return self._context

    def _execute(
        self, store: PlanStore, plan: Plan, subscriptions: dict[str, Subscription], *, is_repeated: bool
    ) -> None:
        """Run a stored plan, note that it is done, move the subscriptions."""
        context = self._open()
        output = self._spec.details.sink.topic
        if output and not self._deduplicate(output) and is_repeated:
            self._say(
                f"deduplication of {output} was off, and is on again: what plan {plan.number} had published before may"
                " be there twice"
            )
        self._began_s = time.monotonic()
        self._planned = len(plan.tasks)
        self._tell(stage="running")
        self._count(Work())
        self._fence_due_s = time.monotonic() + FENCE_PERIOD_S
        if self._function.is_dataframe:
            work = self._run_dataframe(context, store, plan)
        else:
            work = self._run_messages(context, store, plan, is_repeated)
        self._check_cancelled()
        self._check_outputs(plan)
        self._count(work)
        self._tell(stage="committing", tasks_done=self._progress.tasks_total)
        store.finish()
        self._move(store, subscriptions)

    def _deduplicate(self, output: str) -> bool:
        """Have the broker drop what is sent again, and return whether it did so already; waits for one that is away."""
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            self._check_cancelled()
            try:
                return switch_on(self._spec.admin_url, output)
            except ConnectionLost:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(PAUSE_S)

    def _check_outputs(self, plan: Plan) -> None:
        """Fail where the output topic is not the one that was written to: what was in it is gone."""
        output = self._spec.details.sink.topic
        if output and not self._deduplicate(output):
            raise RunFailed(
                f"deduplication of {output} was switched off while the run wrote to it, which the deletion of a topic"
                " does too: outputs may be gone, or be there twice; functions reset-cursor to where they are to be"
                f" made again\n{_kept(plan)}",
                False,
            )

    def _run_messages(self, context: SparkContext, store: PlanStore, plan: Plan, is_repeated: bool) -> Work:
        from .message_job import MessageJob
        from .range_task import Shipment
        from .user_code import pack

        is_local = context.master.startswith("local")
        is_here = is_local and not context.master.startswith("local-")
        package = pack(self._spec.package, is_here, self._function.libraries)
        shipment = Shipment(self._spec.to_json(), package, plan.outputs, writes_log=not package.archive)
        job = MessageJob(context, shipment, plan, is_repeated=is_repeated)
        failure: Exception | None = None
        try:
            with watched(context, self._tag, lambda: self._look(store, *_work_of(job))):
                job.run()
        except Exception as error:  # noqa: BLE001  of py4j; why the job ended decides what it means
            failure = error
        bad = next((result.failure for result in job.results if result.failure is not None), None)
        if bad is not None:
            raise RunFailed(f"{bad.text}\n{_kept(plan)}", bad.is_user_error)
        self._judge(failure, plan)
        if len(job.results) != len(plan.tasks):
            raise RunFailed(f"{len(job.results)} of {len(plan.tasks)} tasks reported an end\n{_kept(plan)}", False)
        return _work_of(job)[0]

    def _run_dataframe(self, context: SparkContext, store: PlanStore, plan: Plan) -> Work:
        from .dataframe_run import DataFrameRun

        spark = self._function.open_session().spark
        run = DataFrameRun(self._spec, spark, plan, self._function.call, self._function.logger)
        jobs = JobProgress(context, self._tag)
        failure: Exception | None = None
        try:
            with watched(context, self._tag, lambda: self._look(store, jobs.look())):
                run.run()
        except Exception as error:  # noqa: BLE001  user code raises what it likes
            failure = error
        self._judge(failure, plan)
        work = jobs.look()
        return replace(work, rows=run.rows or work.rows)  # it need not read all of the frame

    def _judge(self, failure: Exception | None, plan: Plan) -> None:
        """Raise for a job that did not come to its end."""
        if self._function.cancelled.is_set():
            raise RunCancelled
        if self._is_fenced:
            raise RunFenced(f"another driver has taken over plan {plan.number}; this run ends here, that one goes on")
        if failure is None:
            return
        is_of_spark = hasattr(failure, "java_exception") or type(failure).__module__.startswith(("pyspark", "py4j"))
        is_user_error = not isinstance(failure, MagnetarError) and self._function.is_dataframe
        text = told(failure) if is_of_spark or isinstance(failure, MagnetarError) else format_error(failure)
        if isinstance(failure, PicklingError):
            text = (
                f"what {self._spec.details.className} gives to Spark cannot be pickled: {failure}; make it inside of"
                " what Spark calls"
            )
        if is_of_spark and (ours := _OWN_ERROR.search(text)):
            text, is_user_error = ours[1], False  # raised where entries are read or rows are written
        raise RunFailed(f"{text}\n{_kept(plan)}", is_user_error) from failure

    def _look(self, store: PlanStore, work: Work, is_over: bool = False) -> bool:
        """Tell how far the job is; return whether it must end, if only for its failure. On the watching thread."""
        self._count(work)
        if is_over or self._function.cancelled.is_set():
            return True
        if time.monotonic() >= self._fence_due_s:
            self._is_fenced = self._is_fenced or store.is_fenced()
            self._fence_due_s = time.monotonic() + FENCE_PERIOD_S
        return self._is_fenced

    def _count(self, work: Work) -> None:
        before, took_s = self._before, time.monotonic() - self._began_s
        waiting = self._session if took_s > NO_EXECUTORS_S else None
        self._tell(
            tasks_done=before.tasks_done + work.tasks_done,
            tasks_total=before.tasks_done + max(work.tasks_total, self._planned),
            rows=before.rows + work.rows,
            rows_per_s=work.rows / max(took_s, 1e-3),
            metrics=add_metrics([before.metrics, work.metrics]),
            waits_for="" if waiting is None else waiting.waits_for(),
        )

    def _move(self, store: PlanStore, subscriptions: dict[str, Subscription]) -> None:
        """Move the subscriptions to what is done."""
        for topic, end in store.record.ends.items():
            subscription = subscriptions.get(topic)
            if subscription is not None and not subscription.move(end, store.check):  # it may be no input any more
                self._say(f"{topic} was deleted meanwhile, after all that this run planned of it had been read")

    def _check_cancelled(self) -> None:
        if self._function.cancelled.is_set():
            raise RunCancelled

    def _say(self, text: str) -> None:
        self._function.logger.warning("%s", text)

    def _tell(self, **changes: object) -> None:
        progress = replace(self._progress, **changes)  # type: ignore[arg-type]
        if progress != self._progress:
            self._progress = progress
            self._report(progress)

    def _end(self, stage: str, error: str = "", *, is_user_error: bool = False) -> RunProgress:
        return replace(
            self._progress,
            stage=stage,  # type: ignore[arg-type]  # one of the three ends
            error=error,
            is_user_error=is_user_error,
            waits_for="",
            lag=self._function.lag(),
        )


def _work_of(job: MessageJob) -> tuple[Work, bool]:
    """Return what a job has done, and whether one of its tasks has failed for good."""
    results = list(job.results)
    work = Work(
        tasks_done=len(results),
        rows=sum(result.messages for result in results),
        metrics=add_metrics([result.metrics for result in results]),
    )
    return work, any(result.failure is not None for result in results)


def _kept(plan: Plan) -> str:
    return (
        f"plan {plan.number} is kept: the next run begins with it and repeats nothing that is stored; functions"
        " reset-cursor gives it up"
    )
