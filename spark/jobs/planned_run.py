"""A run of a Spark function, from its plan to the acknowledgement of its input.

    planning    complete the plan of an earlier run, then read the subscription positions and split the backlog
    running     with the plan stored, run its job
    committing  with the outputs stored, mark the plan as done, then move the subscriptions

After a failure at any point, the next run continues from the stored state: it repeats an unfinished plan unchanged, and
for a finished plan it moves the subscriptions again, which has no effect if they have been moved already. When another
driver takes over the function, the previous one detects the changed plan version within a second while its job runs,
and stops.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ...client.deduplication import switch_on
from ...errors import MagnetarError
from ...instance.identity import incarnation_of, table_of
from ...instance.stats import format_error, now_ms
from ...state.client import TableClient
from ..cluster import cores_of
from ..task_libraries import for_tasks
from .planner import Planner, Subscription
from .plans import Plan, PlanStore, RunFenced, RunRequest
from .progress import RunProgress, add_metrics
from .retries import with_retries
from .run_history import EndedRun, RunHistory, ended_run
from .spark_job import JobProgress, RunCancelled, RunFailed, Work, failed_job, failed_with, runs_here, watched

if TYPE_CHECKING:
    from pyspark import SparkContext

    from ..session import Session
    from .function_run import SparkFunction
    from .message_job import MessageJob

FENCE_PERIOD_S = 1.0
NO_EXECUTORS_S = 5.0
"""Time for a cluster to start executors before the status reports that the run is waiting for them."""


class PlannedRun:
    """Executes one run. Not thread-safe, except `stop_jobs`."""

    def __init__(
        self, function: SparkFunction, run_id: str, report: Callable[[RunProgress], None], due_ms: int = 0
    ) -> None:
        """Create the run.

        Args:
            function: the function.
            run_id: id of the run.
            report: called with the progress.
            due_ms: time of the trigger that started the run, 0 for none.
        """
        self._due_ms = due_ms
        self._function = function
        self._spec = function.spec
        self._report = report
        self._progress = RunProgress(run_id=run_id, stage="planning")
        self._is_fenced = False
        self._fence_due_s = 0.0
        self._began_s = 0.0
        self._planned = 0  # tasks of the current plan
        self._before = Work()  # of the earlier plan that was completed first
        self._tag = f"magnetar {function.spec.key}"
        self._context: SparkContext | None = None
        self._session: Session | None = None

    def stop_jobs(self) -> None:
        """Cancel the current jobs; can be called from any thread."""
        if self._context is not None:
            self._context.cancelJobsWithTag(self._tag)

    def run(self) -> RunProgress:
        """Execute the run; errors are reported in the result."""
        with contextlib.closing(TableClient(*self._spec.state_store)) as tables:
            request = RunRequest(tables, self._spec)
            began_ms = now_ms()
            end = self._guarded(tables, request, began_ms)
            # In this order: if the driver dies in between, the run is recorded and will be restarted.
            self._remember(tables, ended_run(end, request.started_ms or began_ms, now_ms()), request.due_ms)
            if end.stage != "cancelled":  # the function may continue elsewhere
                request.forget()
        return end

    def _remember(self, tables: TableClient, run: EndedRun, due_ms: int) -> None:
        try:
            RunHistory(tables, self._spec).add(run, due_ms or self._due_ms)
        except MagnetarError as error:
            self._say(f"cannot add finished run {run.run_id} to the run history: {error}")

    def _guarded(self, tables: TableClient, request: RunRequest, began_ms: int) -> RunProgress:
        try:
            request.note(self._progress.run_id, began_ms, self._due_ms)
            self._run(tables)
        except RunCancelled:
            return self._end("cancelled")
        except RunFailed as error:
            return self._end("failed", str(error), is_user_error=error.is_user_error)
        except RunFenced as error:
            return self._end("failed", str(error))
        except MagnetarError as error:
            return self._end("failed", f"{type(error).__name__}: {error}")
        except Exception as error:  # noqa: BLE001  any error is reported in the status
            return self._end("failed", f"{format_error(error)}")
        return self._end("done")

    def _run(self, tables: TableClient) -> None:
        self._report(self._progress)
        metadata = self._spec.metadata
        store = PlanStore(tables, table_of(metadata), incarnation=incarnation_of(metadata), owner=self._function.owner)
        record = store.load()
        found = with_retries(self._function.subscriptions, self._check_cancelled)
        subscriptions = {one.topic: one for one in found}
        self._move(store, subscriptions)
        planner = Planner(self._spec, store, self._say, self._check_cancelled)
        unfinished = record.open_plan
        if unfinished is not None:
            self._say(f"repeating unfinished plan {unfinished.number} of run {unfinished.run_id} unchanged")
            self._execute(store, planner.unfinished(unfinished), subscriptions, is_repeated=True)
            if unfinished.run_id == self._progress.run_id:
                return
            done = self._progress
            self._before = Work(tasks_done=done.tasks_done, rows=done.rows, metrics=done.metrics)
        self._check_cancelled()
        backlogs = planner.backlogs(subscriptions)
        if not backlogs:
            return
        plan = planner.plan(backlogs, self._progress.run_id, cores_of(self._open()))
        # Stored before anything is published: every driver that loads this plan repeats it exactly.
        store.begin(plan)
        self._execute(store, plan, subscriptions, is_repeated=False)

    def _open(self) -> SparkContext:
        if self._context is None:
            self._session = self._function.open_session()
            self._context = self._session.context
        self._check_cancelled()
        return self._context

    def _execute(
        self, store: PlanStore, plan: Plan, subscriptions: dict[str, Subscription], *, is_repeated: bool
    ) -> None:
        """Run a stored plan, mark it as done, and move the subscriptions."""
        context = self._open()
        output = self._spec.details.sink.topic
        if output and not self._deduplicate(output) and is_repeated:
            self._say(
                f"re-enabled deduplication of {output}, which was disabled: outputs already published "
                f"by plan {plan.number} may be duplicated"
            )
        self._began_s = time.monotonic()
        self._planned = len(plan.tasks)
        self._tell(stage="running", number=plan.number)
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
        # In this order: if the driver dies in between, the plan is done and the next run moves the subscriptions. In
        # the opposite order, acknowledged entries could belong to a plan that is repeated.
        store.finish()
        self._move(store, subscriptions)

    def _deduplicate(self, output: str) -> bool:
        """Enable deduplication of the output topic, and return whether it was already enabled."""
        return with_retries(
            lambda: switch_on(self._spec.admin_url, output, self._spec.credentials), self._check_cancelled
        )

    def _check_outputs(self, plan: Plan) -> None:
        """Raise if deduplication was disabled meanwhile, for example by deleting the output topic."""
        output = self._spec.details.sink.topic
        if output and not self._deduplicate(output):
            raise failed_with(
                plan,
                f"deduplication of {output} was disabled while the run was writing to it, possibly "
                "because the topic was deleted: outputs may be missing or duplicated; to produce "
                "them again, use functions reset-cursor",
            )

    def _run_messages(self, context: SparkContext, store: PlanStore, plan: Plan, is_repeated: bool) -> Work:
        from .message_job import MessageJob
        from .user_code import Shipment, pack

        package = pack(self._spec.package, runs_here(context), self._function.libraries)
        shipment = Shipment(
            self._function.spec_for_tasks(context).to_json(), package, plan.outputs, writes_log=not package.archive
        )
        job = MessageJob(context, shipment, plan, is_repeated=is_repeated)
        failure = self._watch(context, job.run, lambda: self._look(store, *_work_of(job)))
        bad = next((result.failure for result in job.results if result.failure is not None), None)
        if bad is not None:
            raise failed_with(plan, bad.text, bad.is_user_error)
        self._judge(failure, plan)
        if len(job.results) != len(plan.tasks):
            raise failed_with(plan, f"only {len(job.results)} of {len(plan.tasks)} tasks reported a result")
        return _work_of(job)[0]

    def _run_dataframe(self, context: SparkContext, store: PlanStore, plan: Plan) -> Work:
        from .dataframe_run import DataFrameRun

        session = self._function.open_session()
        spec = self._function.spec_for_tasks(context)
        run = DataFrameRun(spec, session.spark, plan, self._function.work, self._function.logger)
        if self._function.libraries is not None:
            scratch = None if runs_here(context) else session.scratch
            run.libraries = for_tasks(context, spec.function_name, self._function.libraries, scratch)
        jobs = JobProgress(context, self._tag)
        self._judge(self._watch(context, run.run, lambda: self._look(store, jobs.look())), plan)
        work = jobs.look()
        return replace(work, rows=run.rows or work.rows)  # the function need not read the entire frame

    def _watch(self, context: SparkContext, run: Callable[[], None], look: Callable[[], bool]) -> Exception | None:
        """Run a job and return its exception, whose meaning depends on why the job ended."""
        try:
            with watched(context, self._tag, look):
                run()
        except Exception as error:  # noqa: BLE001  py4j and user code may raise anything
            return error
        return None

    def _judge(self, failure: Exception | None, plan: Plan) -> None:
        """Raise if a job failed, was cancelled or was fenced."""
        self._check_cancelled()
        if self._is_fenced:
            raise RunFenced(f"another driver has taken over plan {plan.number} and continues it; this run has ended")
        if failure is not None:
            what, is_dataframe = self._spec.details.className, self._function.is_dataframe
            raise failed_job(plan, failure, what, runs_user_code=is_dataframe) from failure

    def _look(self, store: PlanStore, work: Work, is_over: bool = False) -> bool:
        """Report the progress of the job, and return whether to cancel it. Called on the watching thread."""
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
        """Acknowledge the entries read by finished plans on each subscription."""
        for topic, end in store.record.ends.items():
            subscription = subscriptions.get(topic)
            if subscription is not None and not subscription.move(end, store.check):  # the input may have been removed
                self._say(f"{topic} was deleted after this run had read all of its planned entries")

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
    """Return the progress of a job and whether one of its tasks has failed permanently."""
    results = list(job.results)
    work = Work(
        tasks_done=len(results),
        rows=sum(result.messages for result in results),
        metrics=add_metrics([result.metrics for result in results]),
    )
    return work, any(result.failure is not None for result in results)
