"""Functions whose tasks run in the test process."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from magnetar.spark.jobs.plans import Task, make_tasks
from magnetar.spark.jobs.range_task import TaskResult, run_task
from magnetar.spark.jobs.user_code import Shipment, pack
from magnetar.wire.functions_pb2 import ConsumerSpec

from tests.client.clusters import OurBroker
from tests.spark.functions import make_spec
from tests.spark.topics import fill, numbered, options_for, planned, values

EXCLAIM = "def process(value):\n    return str(value) + '!'\n"


class Bench:
    """A function with separate topics, whose tasks run in this process."""

    def __init__(
        self,
        broker: OurBroker,
        directory: Path,
        name: str,
        code: str = EXCLAIM,
        config: dict[str, str] | None = None,
        *,
        service_url: str = "",
    ) -> None:
        """Create the topics; tasks use ``service_url`` if it differs from the broker's URL."""
        self.broker, self.directory = broker, directory
        self.input, self.output = broker.topic(), broker.topic()
        place: Any = SimpleNamespace(service_url=service_url or broker.service_url, web_url="")
        spec = make_spec(directory, place, "", code, name=name, output=self.output,
                         inputs={self.input: ConsumerSpec()}, user_config=config or {})  # fmt: skip
        self.spec = spec
        self.shipment = Shipment(spec.to_json(), pack(spec.package, True), 0, writes_log=False)

    def fill(self, count: int) -> None:
        fill(self.broker.service_url, self.input, [[b"%d" % number] for number in range(count)])

    def tasks(self, count: int) -> tuple[Task, ...]:
        wholes = planned(options_for(self.broker.service_url, self.input))
        return make_tasks(wholes, cores=1, min_tasks=count, is_ordered=False)

    def run(self, task: Task, *, is_first: bool = False, **changes: Any) -> TaskResult:
        shipment = Shipment(**(vars(self.shipment) | changes))
        return run_task(shipment, task, self.directory, is_first=is_first)

    def outputs(self) -> Counter[bytes]:
        return Counter(values(options_for(self.broker.service_url, self.output)))


def expected(count: int) -> Counter[bytes]:
    return Counter(value + b"!" for value in numbered(count))
