"""The JVM of a driver: started, ended, and the folder for what it writes.

Design: PySpark's own way is a shell script that starts a JVM that prints the command of the JVM. Starting the last one
directly saves a second or two, needs no shell, and lets `java` leave out what the Java lacks. The JVM ends with the
pipe that is its standard input, so it never outlives this process, however that ends.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from pathlib import Path

from ..errors import SparkFailed
from .java import Java, module_options
from .session_config import SessionConfig

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 10.0
_SCRATCH_PREFIX = "driver-"
_TEMPORARY = "tmp"
_TEMPORARY_PREFIX = "magnetar-spark-"
_POLL_S = 0.02


def start_jvm(
    config: SessionConfig, java: Java, environment: dict[str, str], scratch: Path
) -> tuple[subprocess.Popen[bytes], int, str]:
    """Start the JVM of a driver; return its process, and the port and the secret of its Py4J gateway.

    Raises:
        SparkFailed: it ended, or was not ready in time.
    """
    import pyspark

    home = Path(pyspark.__file__).parent
    answer = scratch / "gateway"
    command = [
        str(java.binary),
        *module_options(java, home / "jars"),
        f"-Xmx{config.heap}",
        f"-Djava.io.tmpdir={(scratch / _TEMPORARY).readlink()}",
        "-cp",
        f"{home / 'conf'}:{home / 'jars'}/*",
        "org.apache.spark.deploy.SparkSubmit",
        "pyspark-shell",
    ]
    # Without it Spark looks up the machine's name, and does not start where that has no address.
    environment.setdefault("SPARK_LOCAL_IP", config.driver_host)
    environment |= {"_PYSPARK_DRIVER_CONN_INFO_PATH": str(answer), "SPARK_HOME": str(home), "SPARK_CONNECT_MODE": "0"}
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(config.log_file.open("ab")) if config.log_file is not None else None
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment, start_new_session=True
        )
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        # Spark renames the finished file to its name: once there, it is complete.
        while not answer.exists():
            if process.poll() is not None:
                raise SparkFailed(
                    f"the JVM of {java.home} (from {java.origin}) ended at its start with {process.returncode};"
                    f" {'its standard error' if config.log_file is None else config.log_file} says why"
                )
            if time.monotonic() > deadline:
                raise SparkFailed(f"the JVM of {java.home} was not ready within {START_TIMEOUT_S:g} s")
            time.sleep(_POLL_S)
        data = answer.read_bytes()
    except BaseException:
        end_jvm(process)
        remove_scratch(scratch)
        raise
    port, length = struct.unpack_from(">ii", data)
    return process, port, data[8 : 8 + length].decode()


def make_scratch(directory: Path) -> Path:
    """Return a new folder for one driver, and remove those of drivers that are gone."""
    directory.mkdir(parents=True, exist_ok=True)
    sweep(directory)
    scratch = Path(tempfile.mkdtemp(prefix=f"{_SCRATCH_PREFIX}{os.getpid()}-", dir=directory))
    # The JVM's own temporary files: a killed one leaves them. Not below the scratch, whose name may be too long for the
    # Unix sockets that Spark makes there; the link is how they are found again.
    (scratch / _TEMPORARY).symlink_to(tempfile.mkdtemp(prefix=_TEMPORARY_PREFIX))
    return scratch


def remove_scratch(scratch: Path) -> None:
    """Remove the folder of a driver, and the temporary files of its JVM."""
    with contextlib.suppress(OSError):
        temporary = (scratch / _TEMPORARY).readlink()
        if temporary.name.startswith(_TEMPORARY_PREFIX):
            shutil.rmtree(temporary, ignore_errors=True)
    shutil.rmtree(scratch, ignore_errors=True)


def sweep(directory: Path) -> None:
    """Remove what drivers that are gone left in the directory of their sessions."""
    for left in directory.glob(f"{_SCRATCH_PREFIX}*"):
        pid = left.name[len(_SCRATCH_PREFIX) :].partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            remove_scratch(left)


def end_jvm(process: subprocess.Popen[bytes]) -> None:
    """Close the JVM's standard input, which ends it; kill it when it does not."""
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
