"""Informs the tasks of streaming queries whether the batches of their query are repeatable.

A data source's writer never sees the plan of its query, because it runs in Python processes that cannot access the JVM.
The program that owns the session can. A listener in that program therefore inspects the plan when a query starts, and
stores the verdict in a local property of the query's thread, which Spark passes to the tasks of all jobs of that
thread. Spark calls the listener in this thread before the first batch, and the listener's calls into the JVM run in the
same thread. With PYSPARK_PIN_THREAD=false they do not; the tasks then find no property, and the sink falls back to
at-least-once writes.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from .repeatable_plans import SOURCE, why_unrepeatable
from .source.source import FORMAT, PULSAR_FORMAT
from .source.streaming.plan_verdict import PROPERTY, PlanVerdict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)
_FORMATS = (FORMAT, PULSAR_FORMAT)
_PYTHON_TABLE = "PythonTable"
"""Spark's class for Python sources; the JVM connector, which is also named ``pulsar``, has a different one."""


class PlanListener:
    """Implementation of Spark's query listener, called through Py4J; its method names are defined by Spark."""

    def __init__(self, spark: SparkSession):
        self._spark = spark

    def onQueryStarted(self, event: Any) -> None:
        """Inspect the plan of a query; called in the query's thread before its first batch."""
        from py4j.protocol import Py4JError

        session = self._spark._jsparkSession
        try:
            execution = session.streams().get(event.id()).streamingQuery()
            verdict = PlanVerdict(why_batches_differ(execution.analyzedPlan()), _first_batch(execution))
            session.sparkContext().setLocalProperty(PROPERTY, verdict.text(event.runId().toString()))
        except (Py4JError, OSError, ValueError, KeyError) as error:  # the query continues without a verdict
            log.debug("cannot inspect the plan of a query: %s", error)

    def onQueryProgress(self, event: Any) -> None:
        """Do nothing."""

    def onQueryIdle(self, event: Any) -> None:
        """Do nothing."""

    def onQueryTerminated(self, event: Any) -> None:
        """Do nothing."""

    class Java:
        """Declares the Java interfaces that this object implements, for Py4J."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


def watch_streams(spark: SparkSession) -> None:
    """Make queries that a session starts from now on inform their tasks whether their batches are repeatable.

    Raises:
        Py4JError: the JVM does not answer.
    """
    from pyspark.java_gateway import ensure_callback_server_started

    gateway = spark.sparkContext._gateway
    assert gateway is not None  # a session has one
    ensure_callback_server_started(gateway)
    wrapper = gateway.jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper
    spark._jsparkSession.streams().addListener(wrapper(PlanListener(spark)))


def why_batches_differ(plan: Any) -> str:
    """Return a short reason why repeated batches of an analyzed plan in the JVM may differ, or an empty string."""
    why = why_unrepeatable(json.loads(plan.toJSON()), _FORMATS)
    if why:
        return why
    if not plan.deterministic():
        return "it has a nondeterministic expression"
    leaf = plan.collectLeaves().apply(0)
    is_ours = leaf.getClass().getSimpleName() == SOURCE and leaf.table().getClass().getSimpleName() == _PYTHON_TABLE
    if not is_ours:
        return "it reads from a source other than magnetar"
    if str(leaf.extraOptions().getOrDefault("failOnDataLoss", "true")).lower() == "false":
        return "its source has failOnDataLoss=false, so rows may be missing when a batch is repeated"
    return ""


def _first_batch(execution: Any) -> int:
    """Return the number of a run's first batch, which follows the last committed batch."""
    committed = execution.commitLog().getLatestBatchId()
    return int(committed.get()) + 1 if committed.isDefined() else 0
