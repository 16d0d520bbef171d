"""Configuration of a Spark session, and Spark settings that cannot be set."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ..errors import InvalidConfig
from .cluster import KUBERNETES, YARN, is_cluster
from .spark_version import installed_spark, version_settings
from .task_killer import WORKER_MODULE

TASK_ATTEMPTS = 4
"""Attempts per task in local mode, where Spark's own default is one."""

_OWN_BAR = "spark.ui.showConsoleProgress"
SETTINGS = {
    # A short job must not wait for a long one.
    "spark.scheduler.mode": "FAIR",
    "spark.python.worker.module": WORKER_MODULE,
    "spark.python.daemon.module": "pyspark_magnetar.daemon",
    # Two concurrent attempts of a task would compete for one producer name.
    "spark.speculation": "false",
    "spark.ui.enabled": "false",
    _OWN_BAR: "false",  # `job_progress` also works in notebooks
    # Spark's own pattern, plus options of the source that may contain secrets.
    "spark.redaction.regex": "(?i)secret|password|passphrase|token|access[.]?key|auth[.]?params|private[.]key",
}
"""Differences from Spark's defaults, with reasons; see also `version_settings`."""
CLUSTER_SETTINGS = {
    # A driver takes all cores of a standalone cluster and keeps them while it waits for work, so that another driver
    # would wait forever. Idle executors are therefore released.
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.executorIdleTimeout": "20s",
    # Cached data of a DataFrame function is not needed after its run, but would hold executors forever without a limit.
    "spark.dynamicAllocation.cachedExecutorIdleTimeout": "60s",
    "spark.dynamicAllocation.shuffleTracking.timeout": "60s",
}
"""Additional differences if executors are separate processes."""
NO_CONNECT = (
    "functions require their own driver, which cancels their tasks and inspects their plans; set "
    "sparkMaster to the master of that cluster (docs/how-to/spark-cluster.md)"
)
"""Reason why ``sparkRemote`` is rejected, with the remedy."""
_TOO_LATE = "the driver's JVM starts before settings are read; remove it"
_NOT_SETTINGS = {
    "spark.master": "the master is configured separately",
    "spark.driver.memory": "the heap is configured separately",
    "spark.driver.extraJavaOptions": _TOO_LATE,
    "spark.driver.defaultJavaOptions": _TOO_LATE,
    "spark.driver.extraClassPath": _TOO_LATE,
    "spark.driver.extraLibraryPath": _TOO_LATE,
    "spark.pyspark.driver.python": "this process is the driver; remove it",
    "spark.submit.deployMode": "this process is the driver; remove it",
    "spark.remote": "Spark Connect sessions have no local driver; set a master",
    "spark.jars.packages": "packages are not downloaded; install the jars on the machine and list them in spark.jars",
}
"""Settings that would have no effect, with their replacements."""


@dataclass(frozen=True, kw_only=True)
class SessionConfig:
    """Configuration of a session.

    Attributes:
        directory: directory for all Spark files except results; files of dead drivers in it are removed.
        master: ``local``, ``local[N]``, ``local[*]``, ``spark://host:port``, ``yarn`` or ``k8s://https://host:port``.
        app_name: application name in Spark.
        heap: heap size of the driver's JVM, as for ``-Xmx``.
        driver_host: address at which a cluster's executors reach this process.
        python: Python interpreter of the executors, unless set as ``spark.pyspark.python``; magnetar and the extra
            ``spark`` must be installed in it.
        settings: Spark settings, which override ours.
        log_file: log of the JVM; None for standard error.
        class_archive: whether to start the JVM from the class archive if there is one (see `class_archive`).
        jvm_options: additional JVM options.
        progress: whether to show the progress of jobs on standard error: True, False, or ``auto`` for only in notebooks
            and if standard error is a terminal.
    """

    directory: Path
    master: str = "local[*]"
    app_name: str = "magnetar"
    heap: str = "1g"
    driver_host: str = "127.0.0.1"
    python: str = sys.executable
    settings: Mapping[str, str] = field(default_factory=dict)
    log_file: Path | None = None
    class_archive: bool = True
    jvm_options: tuple[str, ...] = ()
    progress: Literal["auto"] | bool = "auto"

    def __post_init__(self) -> None:
        spark_master(self.master)
        if not re.fullmatch(r"\d+[kmgKMG]", self.heap):
            raise InvalidConfig(f"invalid heap {self.heap!r}: expected a Java heap size such as 512m or 2g")
        if self.progress not in ("auto", True, False):
            raise InvalidConfig(f"invalid progress {self.progress!r}: expected 'auto', True or False")
        if self.progress is True and self.has_own_bar():
            raise InvalidConfig(
                f"progress=True and {_OWN_BAR}=true would both draw a progress bar: set only one of them"
            )
        for name in self.settings:
            if not name.startswith("spark."):
                raise InvalidConfig(f"{name!r} is not a Spark setting: names start with 'spark.'")
            if (remedy := _NOT_SETTINGS.get(name)) is not None:
                raise InvalidConfig(f"{name} cannot be set here: {remedy}")

    def has_own_bar(self) -> bool:
        """Return whether the settings make Spark draw its own progress bar on the JVM's standard error."""
        return self.settings.get(_OWN_BAR, "false").lower() == "true"


def spark_master(master: str) -> str:
    """Return the master URL for Spark; a local master attempts each task `TASK_ATTEMPTS` times.

    Raises:
        InvalidConfig: the kind of master is unknown.
    """
    local = re.fullmatch(r"local(?:\[(\*|[1-9]\d*)\])?", master)
    if local:
        return f"local[{local[1] or 1},{TASK_ATTEMPTS}]"
    if re.fullmatch(r"local(-cluster)?\[(\*|[1-9]\d*)( *, *\d+)+\]", master) or re.fullmatch(
        r"spark://[^/,:]+:\d+(,[^/,:]+:\d+)*", master
    ):
        return master
    if master == YARN:
        return master
    kubernetes = re.fullmatch(r"k8s://(https?://)?([\w.-]+|\[[\da-fA-F:]+\])(:\d+)?(/[\w./-]*)?", master)
    if kubernetes:  # only Spark's own scripts accept a URL without a scheme
        return master if kubernetes[1] else f"{KUBERNETES}https://{master.removeprefix(KUBERNETES)}"
    if master.startswith("sc://"):
        raise InvalidConfig(f"Spark master {master!r} is a server of Spark Connect: {NO_CONNECT}")
    raise InvalidConfig(
        f"Spark master {master!r} is not supported: expected local[N], local[*], spark://host:port, "
        "yarn or k8s://https://host:port"
    )


def spark_settings(config: SessionConfig, scratch: Path) -> dict[str, str]:
    """Return all settings of a session with temporary files in ``scratch``; user settings take precedence."""
    return {
        **SETTINGS,
        **version_settings(installed_spark()),
        **(CLUSTER_SETTINGS if is_cluster(config.master) else {}),
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(config.directory / "warehouse"),
        "spark.driver.host": config.driver_host,
        "spark.driver.bindAddress": config.driver_host,
        **config.settings,
    }
