"""A function whose runs are Spark jobs: loaded in the driver and run over its backlog when triggered.

Each run is a `PlannedRun`. This module keeps the state shared by runs: the code, the subscriptions, and cancellation.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ...config.conversion import runtime_options
from ...errors import FunctionLoadError
from ...instance.endpoint_settings import subscription_of
from ...instance.function_context import instance_logger
from ...instance.identity import incarnation_of, table_of
from ...instance.loading.kinds import Kind
from ...instance.loading.libraries import LIBRARIES
from ...instance.loading.loader import load_function, requirements_of
from ...instance.loading.requirements import Installed, Installer
from ...instance.spec import InstanceSpec
from ...instance.stats import now_ms
from ...state.client import TableClient
from ...wire.functions_pb2 import EARLIEST
from ...wire.topic_name import parse_topic_name
from ..session import Session
from ..source.connection import Routes
from ..source.publishing import partition_names
from .backlog import backlog_entries
from .driver_credentials import CredentialsServer
from .planned_run import PlannedRun
from .planner import Subscription
from .plans import PlanStore, RunRequest
from .progress import RunProgress
from .run_history import EndedRun, History, RunHistory
from .spark_job import runs_here
from .triggers import cron_of
from .user_code import SPARK_KINDS, SparkHome, takes_dataframe

if TYPE_CHECKING:
    from pyspark import SparkContext

    from .dataframe_run import Call

Report = Callable[[RunProgress], None]
OpenSession = Callable[[], Session]


class SparkFunction:
    """A function in the driver's process.

    Attributes:
        spec: spec of the function.
        work: the function and whether it takes a context, or its SQL statement.
        is_dataframe: whether it is a DataFrame function or a statement, not a message function.
        libraries: directory of installed requirements, or None.
        owner: this driver's name in plans.
        open_session: returns the session, and starts it if needed.
        logger: writes to the function's log.
        cancelled: set when the current run must stop.
    """

    def __init__(self, spec: InstanceSpec, open_session: OpenSession, installer: Installer | None = None) -> None:
        """Load the function and create its subscriptions, without a session.

        Args:
            spec: the function.
            open_session: called by the first run on the run's thread.
            installer: installs requirements; None to reject packages with requirements.

        Raises:
            FunctionLoadError: the function does not exist, or Spark cannot run functions of its kind.
            MagnetarError: the broker does not answer.
            Exception: raised by the function's code.
        """
        self.spec = spec
        self.owner = f"{spec.worker_id}/{uuid.uuid4().hex[:12]}"
        self.open_session = open_session
        self.logger: logging.Logger = instance_logger(spec)
        self.logger.setLevel(logging.INFO)
        self.cancelled = threading.Event()
        self._stop_jobs: Callable[[], None] | None = None
        self._credentials: CredentialsServer | None = None
        self._check()
        self._installed = self._install(installer)
        self.libraries = None if self._installed is None else self._installed.directory
        try:
            LIBRARIES.use(spec.function_name, self.libraries)
            self._load()
            self._begin()
        except BaseException:
            self.close()
            raise

    def _install(self, installer: Installer | None) -> Installed | None:
        requirements = requirements_of(self.spec.package)
        if requirements is None:
            return None
        if installer is None:
            raise FunctionLoadError(
                f"the package contains {requirements.name}, but this runtime does not install "
                "requirements: include the modules in the package"
            )
        return replace(installer, tenant=self.spec.details.tenant).install(requirements)

    def _load(self) -> None:
        statement = runtime_options(self.spec.details.customRuntimeOptions).get("sql")
        self.work: Call | str
        if statement is not None:
            self.work, self.is_dataframe = str(statement), True
            return
        home = SparkHome(self.spec, self.spec.package, None)
        home.enter_thread()
        loaded = load_function(self.spec, home).only(SPARK_KINDS, "a function with runtimeEnv spark")
        self.work = loaded.call, loaded.takes_context
        self.is_dataframe = takes_dataframe(loaded.call)
        if not self.is_dataframe:
            return
        loaded.only((Kind.PLAIN,), "a function of a DataFrame")
        home.pickle_by_value()

    @property
    def is_statement(self) -> bool:
        """Whether the function is a SQL statement, which Spark can validate before a run."""
        return isinstance(self.work, str)

    def check(self, session: Session) -> None:
        """Make Spark analyze the statement; do nothing if the function is code.

        Raises:
            InvalidConfig: the statement cannot be run; the message is a one-line reason.
        """
        if isinstance(self.work, str):
            from .statement import check_query

            check_query(session.spark, self.spec, self.work)

    def close(self) -> None:
        """Release libraries shared with other functions of this process; the function must not run afterwards."""
        LIBRARIES.release(self.spec.function_name)
        if self._credentials is not None:
            self._credentials.close()
            self._credentials = None
        if self._installed is not None:
            self._installed.release()

    def spec_for_tasks(self, context: SparkContext) -> InstanceSpec:
        """Return the spec for tasks, which request credentials from this driver if they run on other machines."""
        credentials = self.spec.credentials
        if credentials.method in ("none", "tls") or runs_here(context):
            return self.spec
        if self._credentials is None:  # shared by all runs, so that functions remain loaded in workers
            self._credentials = CredentialsServer(str(context.getConf().get("spark.driver.host")), credentials)
        return replace(self.spec, security=self._credentials.security)

    def _begin(self) -> None:
        """Fence drivers of earlier incarnations, which may hang, and create the subscriptions."""
        metadata = self.spec.metadata
        with contextlib.closing(TableClient(*self.spec.state_store)) as tables:
            done = (
                PlanStore(tables, table_of(metadata), incarnation=incarnation_of(metadata), owner=self.owner)
                .claim()
                .ends
            )
        for subscription in self.subscriptions():
            subscription.position(is_known=subscription.topic in done)

    def _check(self) -> None:
        for topic, given in self.spec.details.source.inputSpecs.items():
            if given.isRegexPattern:
                raise FunctionLoadError(
                    f"input {topic!r} is a pattern, which runtimeEnv spark does not support: list the topics"
                )
        if not self.spec.state_url:
            raise FunctionLoadError("a Spark function requires a state store for its plans: set stateStorageServiceUrl")

    def subscriptions(self) -> list[Subscription]:
        """Return the subscriptions of all inputs, one per partition.

        Raises:
            MagnetarError: the broker does not answer.
        """
        source = self.spec.details.source
        routes = Routes(self.spec.service_url, self.spec.client_security)
        name = subscription_of(self.spec)
        found: dict[str, Subscription] = {}
        for text in source.inputSpecs:
            topic = parse_topic_name(text)
            count = routes.partitions(topic, makes=True) if topic.partition < 0 else 0
            for part in partition_names(text, count):
                found[part] = Subscription(routes, part, name, from_earliest=source.subscriptionPosition == EARLIEST)
        return list(found.values())

    def run(self, run_id: str, report: Report, due_ms: int = 0) -> RunProgress:
        """Process the backlog and return the final progress; blocking.

        An unfinished plan of an earlier run is completed first, exactly as stored. If the plan belongs to this run, the
        run ends after it.

        Args:
            run_id: id of the run.
            report: called with the progress from any thread.
            due_ms: time of the trigger that started the run, 0 for none.
        """
        self.cancelled.clear()
        run = PlannedRun(self, run_id, report, due_ms)
        self._stop_jobs = run.stop_jobs
        try:
            return run.run()
        finally:
            self._stop_jobs = None

    def unfinished(self) -> str:
        """Return the id of a run that an earlier driver started but did not finish, or an empty string.

        Raises:
            MagnetarError: the state store does not answer.
        """
        with contextlib.closing(TableClient(*self.spec.state_store)) as tables:
            return RunRequest(tables, self.spec).find()

    def history(self) -> History:
        """Return the latest finished runs of this driver and earlier ones.

        Raises:
            MagnetarError: the state store does not answer.
        """
        with contextlib.closing(TableClient(*self.spec.state_store)) as tables:
            history = RunHistory(tables, self.spec).load(cron_of(self.spec.details), now_ms())
            # An active run serves the trigger that started it.
            return replace(history, served_ms=max(history.served_ms, RunRequest(tables, self.spec).due()))

    def remember(self, run: EndedRun, due_ms: int) -> None:
        """Store a run that an earlier driver could not store because it ended first.

        Raises:
            MagnetarError: the state store does not answer.
        """
        with contextlib.closing(TableClient(*self.spec.state_store)) as tables:
            RunHistory(tables, self.spec).add(run, due_ms)
            RunRequest(tables, self.spec).give_up(run.run_id)

    def cancel(self) -> None:
        """Stop any current run within a second, and keep its plan; can be called from any thread."""
        self.cancelled.set()
        stop_jobs = self._stop_jobs
        if stop_jobs is not None:
            stop_jobs()

    def lag(self) -> int:
        """Return the number of entries waiting for a run, or -1 if unknown."""
        return backlog_entries(self.spec)
