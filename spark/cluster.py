"""A driver's executors: the number of cores to plan for, and the reason if there are no executors.

Design: Spark itself waits indefinitely when a cluster provides no executors, even if the master that knew the driver is
gone. While a driver has no executors, this module therefore queries the master with Spark's own messages, as the
master's web page does, for the other drivers and for whether this driver is still registered. All blocking calls run on
a single thread; other threads read its latest result. For YARN and Kubernetes the result only says where to look.
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
"""While there are no executors, every third check queries the master."""
ASK_TIMEOUT_S = 5
YARN = "yarn"
KUBERNETES = "k8s://"
HADOOP_VARIABLES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
"""Environment variables with the YARN configuration directories, the only ones from which Spark reads them."""
NAMES_SHOWN = 3
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """Snapshot of a cluster's workers and applications.

    Attributes:
        workers: cores and megabytes of memory per worker.
        applications: ids and names of the registered drivers.
    """

    workers: tuple[tuple[int, int], ...]
    applications: tuple[tuple[str, str], ...]

    @property
    def cores(self) -> int:
        """Total number of cores."""
        return sum(cores for cores, _ in self.workers)


def is_cluster(master: str) -> bool:
    """Return whether executors are separate processes, started by a cluster manager."""
    return master.startswith("spark://") or is_managed(master)


def is_managed(master: str) -> bool:
    """Return whether YARN or Kubernetes starts the executors."""
    return master == YARN or master.startswith(KUBERNETES)


def masters_of(master: str) -> list[tuple[str, int]]:
    """Return the host and port of each master, including standby masters of a ``spark://`` URL.

    For Kubernetes this is the API server. For YARN the result is empty, because only YARN's configuration contains the
    address.
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
    """Query the leading master of a standalone cluster, or return None if no master answers. Blocking.

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
        _log.info("Spark master %s:%d did not answer: %s", host, port, error.java_exception)
        return None
    if state.status().toString() != "ALIVE":
        return None  # a standby master
    return ClusterView(
        workers=tuple((worker.cores(), worker.memory()) for worker in state.workers()),
        applications=tuple((one.id(), one.desc().name()) for one in state.activeApps()),
    )


def _peers(context: SparkContext, jvm: Any) -> Any:
    """Return the driver's RPC environment, for messages to Spark's processes.

    The lookup is by method handle: Py4J would load every class in the method signatures of SparkEnv, and not all of
    them are installed.
    """
    find_class = jvm.java.lang.Class.forName
    kind = jvm.java.lang.invoke.MethodType.methodType(find_class("org.apache.spark.rpc.RpcEnv"))
    lookup = jvm.java.lang.invoke.MethodHandles.publicLookup()
    method = lookup.findVirtual(find_class("org.apache.spark.SparkEnv"), "rpcEnv", kind)
    arguments = jvm.java.util.ArrayList()
    arguments.add(context._jsc.sc().env())
    return method.invokeWithArguments(arguments)


def cores_of(context: SparkContext) -> int:
    """Return the number of tasks that can run concurrently once the driver has all its executors. Blocking."""
    here = int(context.defaultParallelism)
    if not is_cluster(context.master):
        return here
    if is_managed(context.master):  # the number of possible executors is unknown
        most = context.getConf().get("spark.dynamicAllocation.maxExecutors") or "0"
        return max(here, int(most) * int(context.getConf().get("spark.executor.cores") or 1))
    view = ask_master(context)
    if view is None:
        return here
    return max(1, min(view.cores, int(context.getConf().get("spark.cores.max") or view.cores)))


def why_none(view: ClusterView | None, own_id: str, executor_mb: int) -> str:
    """Return a one-line explanation of why a driver has no executors.

    Args:
        view: cluster snapshot, or None if no master answers.
        own_id: id of this application.
        executor_mb: memory of an executor in megabytes.
    """
    if view is None:
        return "no executors: no Spark master answered; start the master or correct sparkMaster"
    if not view.workers:
        return "no executors: the Spark master has no workers; start workers that register with it"
    largest = max(megabytes for _, megabytes in view.workers)
    if executor_mb > largest:
        return (
            f"no executors: an executor requires {executor_mb} MB, but the largest worker has "
            f"{largest} MB; lower spark.executor.memory in sparkSettings or increase the workers' memory"
        )
    others = [name for id_, name in view.applications if id_ != own_id]
    if others:
        more = f" and {len(others) - NAMES_SHOWN} more" if len(others) > NAMES_SHOWN else ""
        return (
            f"no executors: the cluster's {view.cores} cores are shared with {', '.join(others[:NAMES_SHOWN])}{more};"
            " the run continues when cores become free. Set spark.cores.max in sparkSettings to limit the cores of"
            " each function"
        )
    return (
        f"no executors yet: {len(view.workers)} workers were asked to start some; if none start, "
        "check the stderr of the executors in the workers' work directories (Java, Python, or "
        "network access to this machine)"
    )


def why_none_managed(master: str, application: str) -> str:
    """Return a one-line hint on how to find out why YARN or Kubernetes has not started any executors.

    Args:
        master: Spark master.
        application: application id.
    """
    if master == YARN:
        return (
            f"no executors: YARN has not started any yet; check the page of {application} in the "
            "ResourceManager (queue, container memory and cores, logs of failed containers)"
        )
    return (
        "no executors: Kubernetes has not started any yet; check kubectl describe pods and kubectl "
        f"logs with --selector spark-app-selector={application} (image, service account permissions, "
        "resources, network access to the driver)"
    )


class ClusterWatch:
    """Watches a driver's executors on a separate thread until `close`.

    Attributes:
        reason: one-line explanation of why there are no executors; empty if there are executors or the reason is not
            known yet.
    """

    def __init__(self, context: SparkContext, is_lost: Callable[[], None]) -> None:
        """Start watching.

        Args:
            context: context of the driver.
            is_lost: called once when the driver can no longer get executors, because it was removed or its master no
                longer knows it.
        """
        self._context = context
        self._is_lost = is_lost
        self._looks = 0
        self.reason = ""
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="Spark cluster watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching, without waiting for a response from the master."""
        self._is_over.set()

    def _watch(self) -> None:
        while not self._is_over.wait(LOOK_S):
            try:
                is_lost = self._look()
            except Exception as error:  # noqa: BLE001  several py4j errors indicate that the JVM has ended
                _log.info("stopped monitoring Spark's JVM: %s", error)
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
            _log.warning("the Spark master no longer knows application %s; was the master restarted?", own_id)
            return True
        self.reason = why_none(view, own_id, driver.executorMemory())
        return False
