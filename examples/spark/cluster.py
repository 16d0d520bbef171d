"""Runs a standalone Spark cluster on this machine, from the installed pyspark: a master and two workers, until Ctrl-C.

    python examples/spark/cluster.py                 # on port 7077, or pass another port
    echo 'sparkMaster: spark://127.0.0.1:7077' > functions_worker.yml
    magnetar standalone --config functions_worker.yml

Requires pip install 'magnetar[spark]' and an installed Java. On separate machines, run the same commands with
`--host` and the master's address.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyspark
from magnetar.spark import find_java, standalone_environment

WORKERS = 2
MEMORY = "1536m"  # per worker; an executor uses 1 GiB of it unless spark.executor.memory is set
HOST = "127.0.0.1"
START_TIMEOUT_S = 120.0

Started = dict[str, subprocess.Popen[bytes]]


def start(directory: Path, port: int) -> Started:
    """Start master and workers, each with its own log in ``directory``."""
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        **standalone_environment(find_java(os.environ), home, directory),
        "PYSPARK_PYTHON": sys.executable,  # tasks import magnetar from there
        "SPARK_LOCAL_IP": HOST,
        "SPARK_DAEMON_JAVA_OPTS": "-Dspark.port.maxRetries=0",  # fail if a port is in use instead of trying others
    }
    cores = max(1, (os.cpu_count() or 1) // WORKERS)
    worker = ["org.apache.spark.deploy.worker.Worker", "--cores", str(cores), "--memory", MEMORY]
    commands = {"master": ["org.apache.spark.deploy.master.Master", "--port", str(port)]}
    commands |= {f"worker-{number}": [*worker, f"spark://{HOST}:{port}"] for number in range(WORKERS)}
    started = {}
    for name, (main, *arguments) in commands.items():
        with (directory / f"{name}.log").open("wb") as log:
            started[name] = subprocess.Popen(
                [home / "bin" / "spark-class", main, "--host", HOST, "--webui-port", "0", *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
    return started


def wait_for_workers(directory: Path, started: Started) -> None:
    """Wait until the workers have registered with the master."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while (directory / "master.log").read_text().count("Registering worker") < WORKERS:
        check(directory, started)
        if time.monotonic() > deadline:
            sys.exit(f"the workers did not register within {START_TIMEOUT_S:.0f} s: see the logs in {directory}")
        time.sleep(0.1)


def check(directory: Path, started: Started) -> None:
    """Exit with a message if a process has terminated."""
    for name, process in started.items():
        if process.poll() is not None:
            log = directory / f"{name}.log"
            errors = [line for line in log.read_text().splitlines() if "Exception:" in line]
            sys.exit(f"{name} terminated: {(errors or ['no error was logged'])[-1]}: see {log}")


def main() -> None:
    """Run the cluster."""
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 7077
    for ending in (signal.SIGINT, signal.SIGTERM):  # shells make background jobs ignore SIGINT
        signal.signal(ending, signal.default_int_handler)
    directory = Path(tempfile.mkdtemp(prefix="spark-cluster-"))
    started = start(directory, port)
    try:
        wait_for_workers(directory, started)
        print(
            f"spark://{HOST}:{port} with {WORKERS} workers (logs in {directory}); press Ctrl-C to stop",
            flush=True,
        )
        while True:
            check(directory, started)
            time.sleep(1)
    except KeyboardInterrupt:
        pass
    finally:
        for process in reversed(started.values()):
            process.terminate()
        for process in started.values():
            process.wait()


if __name__ == "__main__":
    main()
