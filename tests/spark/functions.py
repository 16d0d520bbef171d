"""Runs functions as the host does, without host or worker: specs, and drivers in separate processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from magnetar.instance.spec import InstanceSpec
from magnetar.spark.jobs.function_run import SparkFunction
from magnetar.spark.jobs.progress import RunProgress
from magnetar.spark.session import Session
from magnetar.spark.source.connection import ask
from magnetar.state.server import TableServer
from magnetar.wire.functions_pb2 import EARLIEST, ConsumerSpec, FunctionDetails, FunctionMetaData, SinkSpec, SourceSpec

from tests.spark.spark_cluster import LOCAL, Master
from tests.spark.topics import fill, options_for, values
from tests.support.pulsar import Broker

DRIVER = """
import json, sys
from pathlib import Path
from magnetar.spark.jobs.function_run import SparkFunction
from magnetar.spark.session import SessionConfig, open_session
from magnetar.instance.spec import from_json

directory, master, settings, spec, run_id = Path(sys.argv[1]), *sys.argv[2:]
config = SessionConfig(
    directory=directory, master=master, heap="512m", log_file=directory / "jvm.log", settings=json.loads(settings)
)
sessions = []

def session():
    if not sessions:
        sessions.append(open_session(config))
    return sessions[0]

try:
    end = SparkFunction(from_json(spec), session).run(run_id, lambda progress: print(progress.stage, flush=True))
    print(json.dumps({"stage": end.stage, "rows": end.rows, "error": end.error}), flush=True)
finally:
    for one in sessions:
        one.stop()
"""
"""A driver: runs a function once and says how it ended."""


def make_spec(
    directory: Path, broker: Broker, state_url: str, code: str, *, output: str = "out", **details: Any
) -> InstanceSpec:
    """Return the spec of a function that reads topic ``in``; its code file is ``user_code.py``."""
    directory.mkdir(parents=True, exist_ok=True)
    package = directory / "user_code.py"
    package.write_text(code)
    inputs = details.pop("inputs", {"in": ConsumerSpec()})
    config = details.pop("user_config", {})
    incarnation = details.pop("incarnation", 0)
    package = details.pop("package", None) or package
    if (minimum := details.pop("minimum", None)) is not None:
        details["customRuntimeOptions"] = json.dumps({"runtimeEnv": "spark", "minPartitions": minimum})
    sink = SinkSpec(topic=output, forwardSourceMessageProperty=True, **details.pop("sink", {}))
    return InstanceSpec(
        metadata=FunctionMetaData(
            functionDetails=FunctionDetails(
                tenant="public",
                namespace="default",
                name=details.pop("name", "f"),
                className=details.pop("class_name", "user_code.process"),
                userConfig=json.dumps(config),
                source=SourceSpec(inputSpecs=inputs, subscriptionPosition=EARLIEST),
                sink=sink,
                **details,
            ),
            functionUuid="a-uuid",
            cursorIncarnation=incarnation,
        ),
        instance_id=0,
        package=package,
        worker_id="w",
        service_url=broker.service_url,
        admin_url=broker.web_url,
        log_file=directory / "function.log",
        control_socket=directory / "control",
        last_words=directory / "last-words",
        state_url=state_url,
    )


class Driver:
    """A run in a separate process; its JVM and Python workers end with it."""

    def __init__(self, directory: Path, spec: InstanceSpec, run_id: str, master: Master = LOCAL) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.log = directory / "driver.log"
        settings = json.dumps(dict(master.settings))
        command = [sys.executable, "-c", DRIVER, str(directory), master.url, settings, spec.to_json(), run_id]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=directory, env=dict(master.environment)
            )

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def has_reached(self, stage: str) -> bool:
        """Return whether the run reported this, or has ended."""
        return stage in self.log.read_text().splitlines() or self.process.poll() is not None

    def wait(self, timeout_s: float = 400) -> dict[str, Any]:
        """Return the result of the run."""
        assert self.process.wait(timeout_s) == 0, self.log.read_text()[-4000:]
        found: dict[str, Any] = json.loads(self.log.read_text().splitlines()[-1])
        return found

    def kill(self) -> None:
        """Kill the process, as a crash would."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Lab:
    """Creates functions with separate topics and runs them."""

    def __init__(
        self,
        cluster: Broker,
        state: TableServer,
        session: Session,
        directory: Path,
        name: str,
        python_workers: Callable[[], list[psutil.Process]],
    ) -> None:
        self.python_workers = python_workers
        self._cluster, self._state, self._session, self._directory = cluster, state, session, directory
        self.service_url = cluster.service_url
        self.name = name
        self.input, self.output = f"in-{name}", f"out-{name}"
        self.reports: list[RunProgress] = []

    def function(self, code: str, **details: Any) -> SparkFunction:
        details = {"name": self.name, "output": self.output, "inputs": {self.input: ConsumerSpec()}} | details
        session, installer = details.pop("session", self._session), details.pop("installer", None)
        spec = make_spec(self._directory, self._cluster, self._state.url, code, **details)
        return SparkFunction(spec, lambda: session, installer)

    def run(self, function: SparkFunction, run_id: str = "r") -> RunProgress:
        return function.run(run_id, self.reports.append)

    def fill(self, entries: list[list[bytes]], **config: Any) -> None:
        fill(self.service_url, self.input, entries, **config)

    def outputs(self) -> list[bytes]:
        return values(options_for(self.service_url, self.output))

    def delete(self, topic: str) -> None:
        ask(self._cluster.web_url, "DELETE", f"/admin/v2/persistent/public/default/{topic}?force=true")

    def partition(self, topic: str, count: int) -> None:
        ask(self._cluster.web_url, "PUT", f"/admin/v2/persistent/public/default/{topic}/partitions", count)


class Running:
    """Run a function in a thread; cancel it at the end if it is still running."""

    def __init__(self, lab: Lab, function: SparkFunction) -> None:
        self._function = function
        self._ends: list[RunProgress] = []
        self._thread = threading.Thread(target=lambda: self._ends.append(lab.run(function)))

    def __enter__(self) -> Running:
        self._thread.start()
        return self

    def end(self, timeout_s: float) -> RunProgress:
        self._thread.join(timeout_s)
        assert self._ends, "the run goes on"
        return self._ends[0]

    def __exit__(self, *_: object) -> None:
        if self._thread.is_alive():
            self._function.cancel()
            self._thread.join(30)
