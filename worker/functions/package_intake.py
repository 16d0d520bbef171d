"""Intake of packages: checks what a request uploads, stores it, and finds it again by a function's record."""

from __future__ import annotations

import asyncio
import contextlib
import re
from pathlib import Path, PurePosixPath, PureWindowsPath

from ...config.function_config import SPARK, FunctionConfig
from ...errors import PackageError, RequestRefused
from ...metadata.packages import PackageStore, Upload
from ...metadata.packages_extract import SUFFIXES
from ...wire.functions_pb2 import PackageLocationMetaData
from ..cluster.deadline import Deadline
from .package_check import check_package

PACKAGE_PREFIX = "package-"
"""The path of a package in a record: this, and its id."""
NAME_BYTES_MAX = 200

_PACKAGE_ID = re.compile(r"[0-9a-f]{64}")


class PackageIntake:
    """Packages as requests bring them and records name them."""

    def __init__(self, packages: PackageStore) -> None:
        self._packages = packages

    def used(self, upload: Upload | None) -> contextlib.AbstractContextManager[None]:
        """Keep an upload from being removed meanwhile."""
        return self._packages.used(upload.package_id) if upload else contextlib.nullcontext()

    async def keep(
        self, upload: Upload, file_name: str | None, config: FunctionConfig, deadline: Deadline
    ) -> PackageLocationMetaData:
        """Check a package and make it durable.

        Args:
            upload: the package.
            file_name: the name that came with it.
            config: of its function.
            deadline: of the request.

        Raises:
            RequestRefused: 400, it is no package, or has no such function.
        """
        name = _file_name(file_name, config)
        try:
            package = await self._packages.unpack(upload, name)
            await asyncio.to_thread(_check, package, config)
            await deadline.ask(lambda: self._packages.keep(upload, name))
        except PackageError as exc:
            raise RequestRefused(400, str(exc)) from exc
        return PackageLocationMetaData(packagePath=PACKAGE_PREFIX + upload.package_id, originalFileName=name)

    async def keep_named(self, upload: Upload, location: PackageLocationMetaData, deadline: Deadline) -> None:
        """Make sure that a package is there after a record names it.

        It may have been stored long ago, without a name, and removed between the request's look and its record. From
        the record on nobody removes it.
        """
        async with deadline.bound("the change was made, and its package could not be looked at"):
            await deadline.ask(lambda: self._packages.keep(upload, location.originalFileName))

    async def check_stored(self, location: PackageLocationMetaData, config: FunctionConfig) -> None:
        """Check the package of a record against another config.

        Raises:
            RequestRefused: 400, it has no such function.
        """
        try:
            await asyncio.to_thread(_check, await self.fetch(location), config)
        except PackageError as exc:
            raise RequestRefused(400, str(exc)) from exc

    async def fetch(self, location: PackageLocationMetaData) -> Path:
        """Return a record's package, extracted on this machine."""
        return await self._packages.fetch(package_id(location), package_name(location))


def package_id(location: PackageLocationMetaData) -> str:
    """Return the id in a record's package path.

    Raises:
        PackageError: the path is of another kind, such as another system writes.
    """
    identity = location.packagePath.removeprefix(PACKAGE_PREFIX)
    if identity == location.packagePath or not _PACKAGE_ID.fullmatch(identity):
        raise PackageError(f"package path {location.packagePath[:80]!r} is not of the form {PACKAGE_PREFIX}<sha256>")
    return identity


def package_name(location: PackageLocationMetaData) -> str:
    """Return the file name in a record, by which an instance finds the module.

    Raises:
        PackageError: it is no bare name: a record may come from elsewhere, and the name becomes a file's.
    """
    name = location.originalFileName
    if name != _bare(name) or not name.endswith(SUFFIXES) or not name.isprintable():
        raise PackageError(f"the package's file name {name[:80]!a} is no bare name of a {', '.join(SUFFIXES)} file")
    return name


def url_refusal(url: str) -> str:
    """Return why a package is not taken from a URL."""
    if url.startswith(("function://", "sink://", "source://")):
        return f"Function Package management service is disabled. Please enable it to use {url}; or upload it as data"
    return "Function Package url is not valid.supported url (http/https/file); upload the file as data"


def _check(package: Path, config: FunctionConfig) -> None:
    check_package(package, config.class_name or "", installs=config.runtime_env == SPARK)


def _bare(path: str) -> str:
    """Return the last part of a path of any system."""
    return PureWindowsPath(PurePosixPath(path).name).name


def _file_name(sent: str | None, config: FunctionConfig) -> str:
    """Return the package's bare name; a module is found by it, so an upload without a name takes that of `py`."""
    name = _bare(sent or config.file_name or "")
    if not name:
        name = (config.class_name or "").split(".")[0] + ".py"
    if not name.endswith(SUFFIXES) or name in SUFFIXES:
        raise RequestRefused(400, f"the package {name} is not a {', '.join(SUFFIXES)} file; give one of these")
    if not name.isprintable() or len(name.encode()) > NAME_BYTES_MAX:
        raise RequestRefused(400, f"the package name {name[:40]!r} must be 1 to {NAME_BYTES_MAX} printable bytes")
    return name
