"""A function's code in the driver and in the workers of Spark: its modules in a namespace of their own, everywhere.

Design: a message function is not pickled. Its package is sent, and each Python worker loads it as a process instance
does: module variables, classes with a lock or a connection, imports inside functions work unchanged, and what was made
once is kept from task to task. What a DataFrame function gives to Spark (lambdas of a udf, mapInArrow) is pickled by
Spark; its modules are marked so that they go by value, for no executor has them.

Workers of Spark serve all functions of a session in turn, so the modules lie in an `ImportSpace`, as those of thread
instances do.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TextIO

from ...api.serde import SerDe
from ...errors import FunctionLoadError
from ...instance.loading.import_space import ImportSpace, SpacePickleSerDe
from ...instance.loading.loader import WHEELS, Loading
from ...instance.spec import InstanceSpec

_CACHES = ("__pycache__",)
_LIBRARIES = ".requirements"


class SparkHome:
    """The import space of a function's modules in this process; a `loader.Home`.

    Attributes:
        loading: what of it is being imported.
    """

    def __init__(self, spec: InstanceSpec, package: Path, output: TextIO | None) -> None:
        """Prepare.

        Args:
            spec: of the function.
            package: a .py file or the directory of modules, here.
            output: takes what the modules print; None: standard output.
        """
        self.loading = Loading()
        self._space = ImportSpace(spec.key, package, output)

    @property
    def prefix(self) -> str:
        """Prefix of the modules' names, and of their loggers."""
        return self._space.prefix

    def enter_thread(self) -> None:
        """Make the modules importable; those of an earlier version are forgotten."""
        self._space.install()

    def leave_thread(self) -> None:
        """Do nothing: workers keep what they have loaded."""

    def import_module(self, name: str) -> ModuleType:
        """Return a module of the package by its own name."""
        return self._space.import_module(name)

    def pickle_serde(self) -> SerDe:
        """Return a PickleSerDe that finds the package's classes."""
        return SpacePickleSerDe(self._space)

    def pickle_by_value(self) -> None:
        """Have Spark pickle what the modules define instead of naming the modules."""
        import sys

        from pyspark import cloudpickle

        cloudpickle.register_pickle_by_value(sys.modules[self._space.prefix])


@dataclass(frozen=True)
class Package:
    """A function's package as it is sent to executors.

    Attributes:
        name: of the file or directory.
        path: where it is on the driver's machine.
        archive: its content as a zip; empty where all tasks run on the driver's machine.
        digest: of the content.
        libraries: where its requirements are installed on the driver's machine; empty if it has none.
    """

    name: str
    path: str
    archive: bytes
    digest: str
    libraries: str = ""

    def arrive(self, directory: Path) -> Path:
        """Return where the package is on this machine, unpacking it below ``directory`` if needed."""
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
                shutil.rmtree(fresh)  # another worker was first
                if not target.exists():
                    raise
        return target / self.name

    def libraries_beside(self, arrived: Path) -> Path | None:
        """Return where the package's requirements are on the machine where it has arrived, None if it has none."""
        if not self.libraries:
            return None
        return arrived.parent / _LIBRARIES if self.archive else Path(self.libraries)


def pack(path: Path, is_local: bool, libraries: Path | None = None) -> Package:
    """Return a package for executors.

    Args:
        path: a .py file or the directory of modules.
        is_local: all tasks run on this machine.
        libraries: where its requirements are installed, in a directory named after its content; they go with it.

    Raises:
        FunctionLoadError: there is no such package.
    """
    if not path.exists():
        raise FunctionLoadError(f"package {path} is not there")
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if _belongs(file))
    if libraries is not None:
        files = [file for file in files if not file.is_relative_to(path / WHEELS)]  # they are installed
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
