"""How a Spark session is started: its settings, and what of them cannot be set."""

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
"""How often a task is tried in local mode; Spark's own default there is once."""

_OWN_BAR = "spark.ui.showConsoleProgress"
SETTINGS = {
    # A short job does not wait behind a long one.
    "spark.scheduler.mode": "FAIR",
    "spark.python.worker.module": WORKER_MODULE,
    "spark.python.daemon.module": "pyspark_magnetar.daemon",
    # Two attempts of one task at a time would fight for one producer name.
    "spark.speculation": "false",
    "spark.ui.enabled": "false",
    _OWN_BAR: "false",  # `job_progress` has one that notebooks show too
    # Spark's own, and the options of the source that may hold a secret themselves.
    "spark.redaction.regex": "(?i)secret|password|passphrase|token|access[.]?key|auth[.]?params|private[.]key",
}
"""What differs from Spark's defaults, and why; beside it `version_settings`."""
CLUSTER_SETTINGS = {
    # A driver takes all cores of a standalone cluster, and keeps them while it waits for work: another one would wait
    # for ever. So executors are given back when there is nothing to do.
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.executorIdleTimeout": "20s",
    # What a DataFrame function left behind is not needed after its run; without a limit it holds executors for ever.
    "spark.dynamicAllocation.cachedExecutorIdleTimeout": "60s",
    "spark.dynamicAllocation.shuffleTracking.timeout": "60s",
}
"""What differs beside where executors are processes of their own."""
NO_CONNECT = (
    "functions need a driver of their own, which cancels their tasks and looks into their plans; set sparkMaster to the"
    " master of that cluster (docs/how-to/spark-cluster.md)"
)
"""Why ``sparkRemote`` is refused, and what to do."""
_TOO_LATE = "the JVM of the driver is started before settings are read; remove it"
_NOT_SETTINGS = {
    "spark.master": "the master is given beside the settings",
    "spark.driver.memory": "the heap is given beside the settings",
    "spark.driver.extraJavaOptions": _TOO_LATE,
    "spark.driver.defaultJavaOptions": _TOO_LATE,
    "spark.driver.extraClassPath": _TOO_LATE,
    "spark.driver.extraLibraryPath": _TOO_LATE,
    "spark.pyspark.driver.python": "this process is the driver; remove it",
    "spark.submit.deployMode": "this process is the driver; remove it",
    "spark.remote": "a session of Spark Connect has no driver here; give a master",
    "spark.jars.packages": "nothing fetches packages here; put jars there and name them in spark.jars",
}
"""What would have no effect, with the way that has."""


@dataclass(frozen=True, kw_only=True)
class SessionConfig:
    """How a session is started.

    Attributes:
        directory: for everything that Spark writes beside results; what dead drivers left there is removed.
        master: ``local``, ``local[N]``, ``local[*]``, ``spark://host:port``, ``yarn`` or ``k8s://https://host:port``.
        app_name: shown by Spark.
        heap: of the driver's JVM, as ``-Xmx`` takes it.
        driver_host: where executors of a cluster reach this process.
        python: the interpreter of the executors, unless settings name one as ``spark.pyspark.python``; it must have
            magnetar and the extra ``spark``.
        settings: of Spark; they win over ours.
        log_file: what the JVM says; None leaves it on standard error.
        class_archive: start the JVM from the archive of classes if there is one (see `class_archive`).
        jvm_options: more options of the JVM.
        progress: show on standard error how far jobs are: True, False, or ``auto``, which is in notebooks and where
            standard error is a terminal.
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
            raise InvalidConfig(f"progress={self.progress!r} must be 'auto', True or False")
        if self.progress is True and self.has_own_bar():
            raise InvalidConfig(f"progress=True and {_OWN_BAR}=true would both draw a bar; leave one of them out")
        for name in self.settings:
            if not name.startswith("spark."):
                raise InvalidConfig(f"{name!r} is not a Spark setting: names begin with spark.")
            if (remedy := _NOT_SETTINGS.get(name)) is not None:
                raise InvalidConfig(f"{name} cannot be set so; {remedy}")

    def has_own_bar(self) -> bool:
        """Whether the settings have Spark draw its own bar, where the JVM writes its errors."""
        return self.settings.get(_OWN_BAR, "false").lower() == "true"


def spark_master(master: str) -> str:
    """Return the master URL for Spark; a local master tries each task `TASK_ATTEMPTS` times.

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
    if kubernetes:  # Spark takes one without a scheme from its own scripts only
        return master if kubernetes[1] else f"{KUBERNETES}https://{master.removeprefix(KUBERNETES)}"
    if master.startswith("sc://"):
        raise InvalidConfig(f"Spark master {master!r} is a server of Spark Connect: {NO_CONNECT}")
    raise InvalidConfig(
        f"Spark master {master!r} is not supported; give local[N], local[*], spark://host:port, yarn or"
        " k8s://https://host:port"
    )


def spark_settings(config: SessionConfig, scratch: Path) -> dict[str, str]:
    """Return all settings of a session whose temporary files lie in ``scratch``; those of the user win."""
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
