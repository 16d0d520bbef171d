"""A message function loaded in a Python worker of Spark, kept from task to task.

Design: the function has a thread of its own until the worker ends, as it has in other runtimes. What is loaded is kept
by the function's name; a new version of it, or of what it requires, replaces it.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO, cast

from ...instance.batch_call import BatchCall
from ...instance.function_context import instance_logger
from ...instance.loading.loader import load_function, load_serde
from ...instance.logs.file import InstanceLog, LogHandler, LogStream
from ...instance.output_headers import HeaderMaker
from ...instance.spec import InstanceSpec, from_json
from ...instance.stats import InstanceStats
from ...wire.topic_name import parse_topic_name
from .function_contexts import MessageContext, NothingOutside
from .function_requirements import LIBRARIES
from .user_code import Package, SparkHome

_LOADED_MAX = 16


@dataclass(frozen=True)
class Shipment:
    """What all tasks of a run have in common.

    Attributes:
        spec_json: of the function.
        package: its code.
        outputs: partitions of the output topic as the plan says, 0 for a topic without.
        writes_log: the function's log file is on the machine of the tasks.
    """

    spec_json: str
    package: Package
    outputs: int
    writes_log: bool


class WorkerFunction:
    """A function loaded in a Python worker, and the thread that it runs on; made once per worker and version."""

    def __init__(self, shipment: Shipment, directory: Path) -> None:
        """Load the function.

        Raises:
            Exception: whatever its code raises.
        """
        self.spec: InstanceSpec = from_json(shipment.spec_json)
        self.thread = ThreadPoolExecutor(1, f"function {self.spec.key}")
        self.has_output = bool(self.spec.details.sink.topic)
        self.headers = HeaderMaker(self.spec.details.sink.forwardSourceMessageProperty)
        self._log = InstanceLog(self.spec.log_file) if shipment.writes_log else None
        package = shipment.package.arrive(directory)
        self._libraries = shipment.package.libraries_beside(package)
        self._home = SparkHome(
            self.spec,
            package,
            cast(TextIO, LogStream(self._log, "INFO")) if self._log is not None else None,
        )
        try:
            self.thread.submit(self._load).result()
        except BaseException:
            self.close()
            raise

    def _load(self) -> None:
        # The driver has seen to it that functions of these days go together; others here are of earlier ones.
        LIBRARIES.use(self.spec.function_name, self._libraries, displaces=True)
        self._home.enter_thread()
        logger = instance_logger(self.spec)
        if self._log is not None:
            handler = LogHandler(self._log)
            for one in (logger, logging.getLogger(self._home.prefix)):
                one.setLevel(logging.INFO)
                one.propagate = False
                one.handlers = [handler]
        loaded = load_function(self.spec, self._home)
        details = self.spec.details
        self.stats = InstanceStats(time.monotonic())
        self.context: MessageContext | None = None
        if loaded.takes_context:
            self.context = MessageContext(
                self.spec, self.stats, NothingOutside(), logger, lambda class_name: load_serde(self._home, class_name)
            )
        self.call = BatchCall(loaded.call, self.context, load_serde(self._home, details.sink.serDeClassName))
        self.serdes = {
            parse_topic_name(topic).base.text: load_serde(self._home, given.serdeClassName)
            for topic, given in details.source.inputSpecs.items()
        }

    def is_in_place(self) -> bool:
        """Return whether no function after it has brought other versions of what it requires."""
        return LIBRARIES.has(self.spec.function_name, self._libraries)

    def close(self) -> None:
        """End its thread."""
        self.thread.shutdown(wait=False)
        if self._log is not None:
            self._log.close()


# A worker of Spark has no object that lives from task to task; this is the place for what is loaded once.
_loaded: dict[str, tuple[str, WorkerFunction]] = {}


def worker_function(shipment: Shipment, directory: Path) -> WorkerFunction:
    """Return the function of a shipment, loaded now unless this worker has it already."""
    spec = from_json(shipment.spec_json)
    version = f"{shipment.package.digest} {shipment.spec_json}"
    known = _loaded.pop(spec.key, None)
    if known is not None and (known[0] != version or not known[1].is_in_place()):
        known[1].close()
        known = None
    if known is None:
        known = version, WorkerFunction(shipment, directory)
    _loaded[spec.key] = known
    while len(_loaded) > _LOADED_MAX:
        _loaded.pop(next(iter(_loaded)))[1].close()
    return known[1]
