"""Informs the tasks of streaming queries whether the batches of their query repeat.

A data source's writer never sees the plan of its query: it runs in Python processes that cannot reach the JVM. The
program that owns the session can. So a listener in it inspects the plan when a query starts, and stores the verdict in
a local property of the query's thread, which Spark passes to the tasks of all jobs of that thread. Spark calls the
listener in that very thread, before the first batch, and the listener's calls into the JVM run in the same thread. With
PYSPARK_PIN_THREAD=false they do not: then the tasks find no property, and the sink falls back to at least once.
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
"""Spark's class for a Python source; the JVM connector, which is also called ``pulsar``, has another."""


class PlanListener:
    """Spark's listener, called through Py4J; the names of its methods are Spark's."""

    def __init__(self, spark: SparkSession):
        self._spark = spark

    def onQueryStarted(self, event: Any) -> None:
        """Check the plan of a query, in the query's thread and before its first batch."""
        from py4j.protocol import Py4JError

        session = self._spark._jsparkSession
        try:
            execution = session.streams().get(event.id()).streamingQuery()
            verdict = PlanVerdict(why_batches_differ(execution.analyzedPlan()), _first_batch(execution))
            session.sparkContext().setLocalProperty(PROPERTY, verdict.text(event.runId().toString()))
        except (Py4JError, OSError, ValueError, KeyError) as error:  # the query continues without a verdict
            log.debug("the plan of a query is not known: %s", error)

    def onQueryProgress(self, event: Any) -> None:
        """Do nothing."""

    def onQueryIdle(self, event: Any) -> None:
        """Do nothing."""

    def onQueryTerminated(self, event: Any) -> None:
        """Do nothing."""

    class Java:
        """Py4J's description of this object for the JVM."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


def watch_streams(spark: SparkSession) -> None:
    """Make the queries that a session starts from now on inform their tasks whether their batches repeat.

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
    """Return in a few words why repeated batches of an analysed plan in the JVM may differ, or ""."""
    why = why_unrepeatable(json.loads(plan.toJSON()), _FORMATS)
    if why:
        return why
    if not plan.deterministic():
        return "it has a nondeterministic expression"
    leaf = plan.collectLeaves().apply(0)
    is_ours = leaf.getClass().getSimpleName() == SOURCE and leaf.table().getClass().getSimpleName() == _PYTHON_TABLE
    if not is_ours:
        return "it reads from another source than magnetar's"
    if str(leaf.extraOptions().getOrDefault("failOnDataLoss", "true")).lower() == "false":
        return "its source has failOnDataLoss=false, so rows may be missing when a batch is run again"
    return ""


def _first_batch(execution: Any) -> int:
    """Return the number of a run's first batch: the one after the last committed."""
    committed = execution.commitLog().getLatestBatchId()
    return int(committed.get()) + 1 if committed.isDefined() else 0
