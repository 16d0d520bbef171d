"""A function's code in the driver and in Spark's workers, with its modules in a separate namespace.

Design: message functions are not pickled. Instead, the package is sent to the Python workers, which load it like a
process instance does. Module variables, classes with a lock or a connection, and imports inside functions therefore
work unchanged, and objects persist between tasks. Functions that a DataFrame function passes to Spark (lambdas of a
udf, mapInArrow) are pickled by Spark; the function's modules are marked for pickling by value, because executors do not
have them.

Spark's workers run all functions of a session alternately, so the modules are in an `ImportSpace`, like those of thread
instances. As in other runtimes, a message function has its own thread, which lives as long as the worker. Loaded
functions are cached by name; a new version of a function or of its requirements replaces the old one.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import logging
import os
import shutil
import tempfile
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO, cast

from ...api.serde import SerDe
from ...errors import FunctionLoadError
from ...instance.function_context import instance_logger
from ...instance.kind_calls import call_of
from ...instance.loading.import_space import ImportSpace, SpacePickleSerDe
from ...instance.loading.kinds import Kind
from ...instance.loading.libraries import LIBRARIES
from ...instance.loading.loader import WHEELS, Loading, load_function, load_serde
from ...instance.logs.file import InstanceLog, LogHandler, LogStream
from ...instance.output_headers import HeaderMaker
from ...instance.spec import InstanceSpec, from_json
from ...instance.stats import InstanceStats
from ...instance.values.loading import load_values
from ...wire.topic_name import parse_topic_name
from .function_contexts import MessageContext, NothingOutside

SPARK_KINDS = (Kind.PLAIN, Kind.BATCH, Kind.GENERATOR)
"""Kinds of functions that can run as jobs. A task has one thread, so concurrent kinds are excluded."""
DATAFRAME_PARAMETER = "df"
_CACHES = ("__pycache__",)
_LIBRARIES = ".requirements"
_LOADED_MAX = 16


class SparkHome:
    """Import space of a function's modules in this process; implements `loader.Home`.

    Attributes:
        loading: modules that are being imported.
    """

    def __init__(self, spec: InstanceSpec, package: Path, output: TextIO | None) -> None:
        """Create the import space.

        Args:
            spec: the function.
            package: a .py file or the directory of modules, on this machine.
            output: file that receives printed output; None for standard output.
        """
        self.loading = Loading()
        self._space = ImportSpace(spec.key, package, output)

    @property
    def prefix(self) -> str:
        """Prefix of the names of modules and their loggers."""
        return self._space.prefix

    def enter_thread(self) -> None:
        """Make the modules importable, and drop those of an earlier version."""
        self._space.install()

    def leave_thread(self) -> None:
        """Do nothing: workers keep loaded modules."""

    def import_module(self, name: str) -> ModuleType:
        """Return a module of the package by its name within the package."""
        return self._space.import_module(name)

    def pickle_serde(self) -> SerDe:
        """Return a PickleSerDe that can find the package's classes."""
        return SpacePickleSerDe(self._space)

    def pickle_by_value(self) -> None:
        """Make Spark pickle objects of the modules by value instead of by module name."""
        import sys

        from pyspark import cloudpickle

        cloudpickle.register_pickle_by_value(sys.modules[self._space.prefix])


def takes_dataframe(function: Callable[..., Any]) -> bool:
    """Return whether a function takes a DataFrame: its first parameter is named ``df`` or annotated as a DataFrame."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False
    if not parameters:
        return False
    first, annotation = parameters[0], parameters[0].annotation
    if first.name == DATAFRAME_PARAMETER:
        return True
    if isinstance(annotation, str):
        return annotation.rpartition(".")[2] == "DataFrame"
    return (
        getattr(annotation, "__name__", "") == "DataFrame"
        and getattr(annotation, "__module__", "").partition(".")[0] == "pyspark"
    )


@dataclass(frozen=True)
class Package:
    """A function's package in the form sent to executors.

    Attributes:
        name: name of the file or directory.
        path: path on the driver's machine.
        archive: content as a zip archive; empty if all tasks run on the driver's machine.
        digest: digest of the content.
        libraries: directory of installed requirements on the driver's machine; empty without requirements.
    """

    name: str
    path: str
    archive: bytes
    digest: str
    libraries: str = ""

    def arrive(self, directory: Path) -> Path:
        """Return the package's path on this machine, and unpack it in ``directory`` if needed."""
        if not self.archive:
            return Path(self.path)
        target = directory / f"magnetar-{self.digest}"
        if not target.exists():
            fresh = Path(tempfile.mkdtemp(dir=directory))
            with zipfile.ZipFile(io.BytesIO(self.archive)) as archive:
                archive.extractall(fresh)
            try:
                os.rename(fresh, target)
            except OSError:
                shutil.rmtree(fresh)  # another worker created the directory first
                if not target.exists():
                    raise
        return target / self.name

    def libraries_beside(self, arrived: Path) -> Path | None:
        """Return the directory of the package's requirements on a machine where the package is unpacked, or None."""
        if not self.libraries:
            return None
        return arrived.parent / _LIBRARIES if self.archive else Path(self.libraries)


def pack(path: Path, is_local: bool, libraries: Path | None = None) -> Package:
    """Return a package for executors.

    Args:
        path: a .py file or the directory of modules.
        is_local: whether all tasks run on this machine.
        libraries: directory of installed requirements, named after its content; included in the package.

    Raises:
        FunctionLoadError: the package does not exist.
    """
    if not path.exists():
        raise FunctionLoadError(f"package {path} does not exist")
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if _belongs(file))
    if libraries is not None:
        files = [file for file in files if not file.is_relative_to(path / WHEELS)]  # already installed
    digest = hashlib.sha256()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            name, content = file.relative_to(path.parent).as_posix(), file.read_bytes()
            digest.update(f"{name}\0{len(content)}\0".encode())
            digest.update(content)
            if not is_local:
                archive.writestr(name, content)
        if libraries is not None:
            digest.update(libraries.name.encode())
            for file in [] if is_local else filter(_belongs, sorted(libraries.rglob("*"))):
                archive.write(file, f"{_LIBRARIES}/{file.relative_to(libraries).as_posix()}")
    return Package(
        path.name, str(path), b"" if is_local else buffer.getvalue(), digest.hexdigest(), str(libraries or "")
    )


def _belongs(file: Path) -> bool:
    return file.is_file() and not any(part in _CACHES for part in file.parts)


@dataclass(frozen=True)
class Shipment:
    """Data shared by all tasks of a run.

    Attributes:
        spec_json: spec of the function.
        package: code of the function.
        outputs: number of output topic partitions in the plan; 0 if the topic is not partitioned.
        writes_log: whether the function's log file is on the tasks' machine.
    """

    spec_json: str
    package: Package
    outputs: int
    writes_log: bool


class WorkerFunction:
    """A function loaded in a Python worker, and its thread. Created once per worker and version."""

    def __init__(self, shipment: Shipment, directory: Path) -> None:
        """Load the function.

        Raises:
            Exception: raised by the function's code.
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
        # The driver has checked that current functions are compatible, so other functions here are outdated.
        LIBRARIES.use(self.spec.function_name, self._libraries, displaces=True)
        self._home.enter_thread()
        logger = instance_logger(self.spec)
        if self._log is not None:
            handler = LogHandler(self._log)
            for one in (logger, logging.getLogger(self._home.prefix)):
                one.setLevel(logging.INFO)
                one.propagate = False
                one.handlers = [handler]
        loaded = load_function(self.spec, self._home).only(SPARK_KINDS, "a function with runtimeEnv spark")
        self.stats = InstanceStats(time.monotonic())
        self.context: MessageContext | None = None
        if loaded.takes_context:
            self.context = MessageContext(
                self.spec, self.stats, NothingOutside(), logger, lambda class_name: load_serde(self._home, class_name)
            )
        values = load_values(self.spec.details, self._home, loaded.call)
        self.call = call_of(loaded, self.context, values.output)
        self.serdes = {parse_topic_name(topic).base.text: serde for topic, serde in values.inputs.items()}

    def is_in_place(self) -> bool:
        """Return whether the function's requirements have not been replaced by other versions of a later function."""
        return LIBRARIES.has(self.spec.function_name, self._libraries)

    def close(self) -> None:
        """End the function's thread."""
        self.thread.shutdown(wait=False)
        if self._log is not None:
            self._log.close()


# Spark's workers have no object that persists between tasks, so loaded functions are cached here.
_loaded: dict[str, tuple[str, WorkerFunction]] = {}


def worker_function(shipment: Shipment, directory: Path) -> WorkerFunction:
    """Return the function of a shipment, and load it unless this worker has it already."""
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
