"""A driver's executors: cores to plan for, and why there are none.

Design: Spark itself only waits when a cluster provides no executors, and forever if the master that knew the driver is
gone. So while a driver has none, its master is queried, as by the master's web page, through Spark's messages: which
other drivers exist, and is this one still known? Everything that may block happens on one thread of this module; the
others read its last result. For YARN and Kubernetes it only says where to look.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from pyspark import SparkContext

LOOK_S = 1.0
LOOKS_PER_QUESTION = 3
"""Without executors, the master is queried at every third check."""
ASK_TIMEOUT_S = 5
YARN = "yarn"
KUBERNETES = "k8s://"
HADOOP_VARIABLES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
"""Directories of YARN's configuration; Spark reads it only from these."""
NAMES_SHOWN = 3
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The workers and applications of a cluster at one moment.

    Attributes:
        workers: cores and megabytes of each.
        applications: ids and names of the drivers that it knows.
    """

    workers: tuple[tuple[int, int], ...]
    applications: tuple[tuple[str, str], ...]

    @property
    def cores(self) -> int:
        """Cores of all workers."""
        return sum(cores for cores, _ in self.workers)


def is_cluster(master: str) -> bool:
    """Return whether executors are separate processes, started by a cluster manager."""
    return master.startswith("spark://") or is_managed(master)


def is_managed(master: str) -> bool:
    """Return whether YARN or Kubernetes starts the executors."""
    return master == YARN or master.startswith(KUBERNETES)


def masters_of(master: str) -> list[tuple[str, int]]:
    """Return host and port of all masters: of a ``spark://`` URL each master, including standby ones.

    For Kubernetes it is the API server; for YARN it is empty, because only its configuration names the address.
    """
    if master == YARN:
        return []
    if master.startswith(KUBERNETES):
        address = master.removeprefix(KUBERNETES)
        url = urlsplit(address if "://" in address else f"https://{address}")
        return [(url.hostname or "", url.port or (80 if url.scheme == "http" else 443))]
    addresses = master.removeprefix("spark://").split(",")
    return [(host, int(port)) for host, _, port in (address.rpartition(":") for address in addresses)]


def ask_master(context: SparkContext) -> ClusterView | None:
    """Query the leading master of a standalone cluster; returns None if none answers. Blocking.

    Raises:
        Py4JError: the driver's own JVM has ended.
    """
    for host, port in masters_of(context.master):
        view = _ask(context, host, port)
        if view is not None:
            return view
    return None


def _ask(context: SparkContext, host: str, port: int) -> ClusterView | None:
    from py4j.protocol import Py4JJavaError

    jvm: Any = context._jvm
    deploy = jvm.org.apache.spark.deploy
    request = getattr(getattr(deploy, "DeployMessages$RequestMasterState$"), "MODULE$")
    answer = getattr(getattr(jvm.scala.reflect, "ClassTag$"), "MODULE$").Any()
    seconds = jvm.java.util.concurrent.TimeUnit.SECONDS
    timeout = jvm.org.apache.spark.rpc.RpcTimeout(
        jvm.scala.concurrent.duration.FiniteDuration(ASK_TIMEOUT_S, seconds), "timeout"
    )
    try:
        peers = _peers(context, jvm)
        master = peers.setupEndpointRef(jvm.org.apache.spark.rpc.RpcAddress(host, port), "Master")
        state = master.askSync(request, timeout, answer)
    except Py4JJavaError as error:
        _log.info("the Spark master %s:%d does not answer: %s", host, port, error.java_exception)
        return None
    if state.status().toString() != "ALIVE":
        return None  # a standby master
    return ClusterView(
        workers=tuple((worker.cores(), worker.memory()) for worker in state.workers()),
        applications=tuple((one.id(), one.desc().name()) for one in state.activeApps()),
    )


def _peers(context: SparkContext, jvm: Any) -> Any:
    """Return the driver's interface for messages to Spark's processes.

    Py4J would have to load all classes named by methods of SparkEnv, and not all of them are installed.
    """
    find_class = jvm.java.lang.Class.forName
    kind = jvm.java.lang.invoke.MethodType.methodType(find_class("org.apache.spark.rpc.RpcEnv"))
    lookup = jvm.java.lang.invoke.MethodHandles.publicLookup()
    method = lookup.findVirtual(find_class("org.apache.spark.SparkEnv"), "rpcEnv", kind)
    arguments = jvm.java.util.ArrayList()
    arguments.add(context._jsc.sc().env())
    return method.invokeWithArguments(arguments)


def cores_of(context: SparkContext) -> int:
    """Return how many tasks can run at a time once the cluster has provided all executors of this driver. Blocking."""
    here = int(context.defaultParallelism)
    if not is_cluster(context.master):
        return here
    if is_managed(context.master):  # the executors that it may provide are unknown
        most = context.getConf().get("spark.dynamicAllocation.maxExecutors") or "0"
        return max(here, int(most) * int(context.getConf().get("spark.executor.cores") or 1))
    view = ask_master(context)
    if view is None:
        return here
    return max(1, min(view.cores, int(context.getConf().get("spark.cores.max") or view.cores)))


def why_none(view: ClusterView | None, own_id: str, executor_mb: int) -> str:
    """Return in one line why a driver has no executors.

    Args:
        view: view of the cluster; None if no master answers.
        own_id: id of this application.
        executor_mb: memory of an executor.
    """
    if view is None:
        return "no executors: no Spark master answers; start it, or correct sparkMaster"
    if not view.workers:
        return "no executors: the Spark master has no workers; start some that register with it"
    largest = max(megabytes for _, megabytes in view.workers)
    if executor_mb > largest:
        return (
            f"no executors: one takes {executor_mb} MB, the largest worker has {largest} MB; lower"
            " spark.executor.memory in sparkSettings, or give workers more"
        )
    others = [name for id_, name in view.applications if id_ != own_id]
    if others:
        more = f" and {len(others) - NAMES_SHOWN} more" if len(others) > NAMES_SHOWN else ""
        return (
            f"no executors: the {view.cores} cores of the cluster are shared with {', '.join(others[:NAMES_SHOWN])}"
            f"{more}; the run goes on when some are free. spark.cores.max in sparkSettings bounds what one takes"
        )
    return (
        f"no executors yet: {len(view.workers)} workers have been asked to start some; if it stays so, the stderr of"
        " executors in their work directories says why (their Java, their Python, or no way to this machine)"
    )


def why_none_managed(master: str, application: str) -> str:
    """Return in one line where to find out why YARN or Kubernetes has given a driver no executors.

    Args:
        master: the Spark master.
        application: application id.
    """
    if master == YARN:
        return (
            f"no executors: YARN has given none yet; the page of {application} on its ResourceManager says why (its"
            " queue, the memory and cores of a container, the logs of containers that ended)"
        )
    return (
        "no executors: Kubernetes has given none yet; kubectl describe pods, and logs, with --selector"
        f" spark-app-selector={application} say why (the image, rights of the service account, room, no way to the"
        " driver)"
    )


class ClusterWatch:
    """Watches the executors of a driver, on its own thread until `close`.

    Attributes:
        reason: in one line why there are no executors; empty if there are some, or if it is not known yet.
    """

    def __init__(self, context: SparkContext, is_lost: Callable[[], None]) -> None:
        """Start.

        Args:
            context: context of the driver.
            is_lost: called once when the driver cannot get executors any more, because it was removed or its master
                does not know it.
        """
        self._context = context
        self._is_lost = is_lost
        self._looks = 0
        self.reason = ""
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="Spark cluster watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching, without waiting for an answer from the master."""
        self._is_over.set()

    def _watch(self) -> None:
        while not self._is_over.wait(LOOK_S):
            try:
                is_lost = self._look()
            except Exception as error:  # noqa: BLE001  one of several py4j errors: the JVM has ended
                _log.info("the JVM of Spark is not looked after any more: %s", error)
                return
            if is_lost and not self._is_over.is_set():
                self._is_lost()
                return

    def _look(self) -> bool:
        driver: Any = self._context._jsc.sc()
        if driver.isStopped():
            return True
        if not driver.getExecutorIds().isEmpty():
            self.reason, self._looks = "", 0
            return False
        self._looks += 1
        if self._looks % LOOKS_PER_QUESTION:
            return False
        own_id = driver.applicationId()
        if is_managed(self._context.master):
            self.reason = why_none_managed(self._context.master, own_id)
            return False
        view = ask_master(self._context)
        if view is not None and all(id_ != own_id for id_, _ in view.applications):
            _log.warning("the Spark master does not know application %s any more; was it restarted?", own_id)
            return True
        self.reason = why_none(view, own_id, driver.executorMemory())
        return False
