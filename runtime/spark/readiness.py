"""Whether this machine can run Spark functions, found out without starting anything."""

from __future__ import annotations

import os
from collections.abc import Mapping

from .java import find_java
from .requirements import READS_AND_WRITES, need
from .session import reach_master, spark_master


def check_ready(master: str, environment: Mapping[str, str] | None = None) -> None:
    """Make sure of the extra, of a Java, and of the master. Blocking: a master that is silent takes 5 s an address.

    Args:
        master: as `SessionConfig` takes it.
        environment: where Java is looked for; None is this process's.

    Raises:
        InvalidConfig: something is not installed, or the master is of an unknown kind.
        SparkFailed: no master answers.
    """
    need("pyspark", *READS_AND_WRITES)
    find_java(os.environ if environment is None else environment)
    spark_master(master)
    reach_master(master)
