"""Throughput of a message function as a Spark job, topic to topic, exactly once, compared with the process runtime.

The same function reads the same topic on the same broker, first as process instances, then as Spark runs in a separate
process: `python -m benchmarks.spark_function BROKER WEB MESSAGES REPEATS` prints its measurements as JSON. Inputs are
the official client's two shapes, then our own encoder's.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx

from tests.support.functions import Functions
from tests.support.servers import Server

from .figure import Figure
from .function_rates import SOURCE, Counter
from .load import hold
from .plan import Plan
from .real_input import OWN, Input, inputs
from .spark_extra import is_installed, measured

MESSAGES = 4_000_000
OFFICIAL_MESSAGES = 1_000_000
QUICK_MESSAGES = 700_000
PROCESS_MESSAGES = 600_000
"""Number of messages on which a process instance is measured."""
TARGET = 800_000
"""Target for our own encoder's input."""
TOPIC = "spark-input"
_BATCH = 1000


def measure_spark_function(plan: Plan) -> Iterator[Figure]:
    """Measure rows per second of a run, from the start of its tasks to the last output on disk."""
    if not is_installed("spark-function"):
        return
    for given in inputs(plan, _BATCH):
        yield _measure(plan, given)


def _measure(plan: Plan, given: Input) -> Figure:
    count = QUICK_MESSAGES
    if plan.repeats > 1:
        count = MESSAGES if given.name == OWN else OFFICIAL_MESSAGES
    with plan.server("standalone") as server:
        hold(server.service_url, TOPIC, "kept")
        given.fill(server.service_url, TOPIC, count)
        process = statistics.median(_process_rate(server, number) for number in range(plan.repeats))
        found = measured("spark_function", server.service_url, server.web_url, count, plan.repeats)
    return Figure(
        name=f"Spark: message function, topic to topic, {given.name}, {count / 1e6:g} million messages",
        ours=found["warm"],
        unit="rows/s",
        peer=process,
        peer_name="one instance of the process runtime",
        target=TARGET if given.name == OWN else None,
        note=f"local[2]; the first run, in which the Python workers start: {found['first']:,.0f} rows/s",
        table=given.table,
    )


def _process_rate(server: Server, number: int) -> float:
    name, output = f"process{number}", f"process-output-{number}"
    config = {
        "className": f"{name}.process",
        "inputs": [TOPIC],
        "output": output,
        "subscriptionPosition": "Earliest",
        "runtimeEnv": "process",
    }
    with Functions(server.web_url) as functions, Counter(server.web_url, output) as counter:
        functions.create(name, SOURCE, config).raise_for_status()
        rate = counter.slope(PROCESS_MESSAGES, server, name).rate
        functions.delete(name)
    return rate


def main(service_url: str, web_url: str, count: int, repeats: int) -> None:
    """Measure in this process, and print JSON."""
    from magnetar.instance.spec import InstanceSpec
    from magnetar.spark.jobs.function_run import SparkFunction
    from magnetar.spark.session import SessionConfig, open_session
    from magnetar.state.server import TableServer
    from magnetar.wire.functions_pb2 import (
        EARLIEST,
        ConsumerSpec,
        FunctionDetails,
        FunctionMetaData,
        SinkSpec,
        SourceSpec,
    )

    rates = []
    with tempfile.TemporaryDirectory() as text:
        directory = Path(text)
        (directory / "exclaim.py").write_text(SOURCE)
        state = TableServer.start(directory)
        config = SessionConfig(directory=directory / "spark", master="local[2]", log_file=directory / "jvm.log")
        with open_session(config) as session:
            for run in range(repeats + 1):
                details = FunctionDetails(
                    tenant="public", namespace="default", name=f"f{run}", className="exclaim.process",
                    source=SourceSpec(inputSpecs={TOPIC: ConsumerSpec()}, subscriptionPosition=EARLIEST),
                    sink=SinkSpec(topic=f"spark-output-{run}"),
                )  # fmt: skip
                spec = InstanceSpec(
                    metadata=FunctionMetaData(functionDetails=details, functionUuid=f"uuid-{run}"),
                    instance_id=0, package=directory / "exclaim.py", worker_id="w", service_url=service_url,
                    admin_url=web_url, log_file=directory / "log", control_socket=directory / "control",
                    last_words=directory / "words", state_url=state.url,
                )  # fmt: skip
                end = SparkFunction(spec, lambda: session).run(f"r{run}", lambda progress: None)
                assert (end.stage, end.rows) == ("done", count), end
                path = f"/admin/v2/persistent/public/default/spark-output-{run}/stats"
                assert httpx.get(web_url + path).raise_for_status().json()["msgInCounter"] == count
                rates.append(end.rows_per_s)
        state.stop()
    print(json.dumps({"first": rates[0], "warm": statistics.median(rates[1:])}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
