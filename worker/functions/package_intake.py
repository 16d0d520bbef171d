"""Intake of packages: checks and stores uploads, and fetches the packages of records."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Awaitable, Callable
from pathlib import Path, PurePosixPath, PureWindowsPath

from ...api.context import NO_STATE_STORE
from ...config.connector_config import BUILT_IN, ConnectorConfig, SinkConfig, SourceConfig
from ...config.conversion import to_details
from ...config.function_config import SPARK, FunctionConfig
from ...errors import PackageError, RequestRefused
from ...instance.examination import source
from ...instance.examination.package import Question
from ...instance.examination.source import SourceQuestion
from ...instance.examination.values import value_settings
from ...metadata.packages import PackageStore, Upload
from ...metadata.packages_extract import SUFFIXES
from ...wire.functions_pb2 import PackageLocationMetaData
from ..cluster.hand_over import Deadline
from .code_check import CodeCheck
from .package_urls import PackageUrls

PACKAGE_PREFIX = "package-"
"""Prefix of a package's path in a record, followed by the package id."""
NAME_BYTES_MAX = 200

_PACKAGE_ID = re.compile(r"[0-9a-f]{64}")


class PackageIntake:
    """Checks, stores and fetches packages from requests and records."""

    def __init__(
        self,
        packages: PackageStore,
        code: CodeCheck,
        urls: PackageUrls,
        remove_refused: Callable[[str], Awaitable[None]],
        *,
        has_state: bool,
    ) -> None:
        self._has_state = has_state
        self._remove_refused = remove_refused
        self._packages = packages
        self._code = code
        self._urls = urls

    def used(self, upload: Upload | None) -> contextlib.AbstractContextManager[None]:
        """Context manager that protects an upload from removal."""
        return self._packages.used(upload.package_id) if upload else contextlib.nullcontext()

    async def fetch_url(self, url: str, title: str) -> tuple[Upload, str]:
        """Same as `PackageUrls.fetch`; pass the returned upload to `discard` afterwards."""
        return await self._urls.fetch(url, title)

    async def discard(self, upload: Upload) -> None:
        """Remove an upload's file, but not the package that was stored from it."""
        await self._packages.discard(upload)

    async def refused(self, upload: Upload | None) -> None:
        """Remove the unpacked package of an upload whose deployment was rejected."""
        if upload is not None:
            await self._remove_refused(upload.package_id)

    async def keep(
        self, upload: Upload, file_name: str | None, config: FunctionConfig | ConnectorConfig, deadline: Deadline
    ) -> tuple[PackageLocationMetaData, str]:
        """Check a package, store it durably, and return its location and the name of the class to run.

        Args:
            upload: uploaded package.
            file_name: file name sent with the upload.
            config: the function's config.
            deadline: deadline of the request.

        Raises:
            PackageError: the upload is not a valid package, or does not contain the function.
            RequestRefused: 400, the file name is not a valid package name.
        """
        name = _file_name(file_name, config)
        place = await self._packages.unpack(upload, name)
        needs_state = not self._has_state and config.runtime_env != SPARK
        found = await self._code.read_source(source_question(place, config, finds_state_call=needs_state))
        if found.state_call:
            raise PackageError(f"className {found.class_name} calls {found.state_call}, and {NO_STATE_STORE}")
        await self._examine(place, found.class_name, config)
        await deadline.ask(lambda: self._packages.keep(upload, name))
        location = PackageLocationMetaData(packagePath=PACKAGE_PREFIX + upload.package_id, originalFileName=name)
        return location, found.class_name

    async def keep_transform(
        self, upload: Upload, file_name: str | None, config: ConnectorConfig, deadline: Deadline
    ) -> PackageLocationMetaData:
        """Same as `keep`, for the package of an installed connector's transform function."""
        class_name = config.transform_function_class_name or ""
        name = _package_name(file_name or config.transform_function or "", class_name)
        place = await self._packages.unpack(upload, name)
        await self._check_transform(place, class_name, config.tenant or "")
        await deadline.ask(lambda: self._packages.keep(upload, name))
        return PackageLocationMetaData(packagePath=PACKAGE_PREFIX + upload.package_id, originalFileName=name)

    async def check_transform(self, location: PackageLocationMetaData, class_name: str, tenant: str) -> None:
        """Check the package of a transform function against another class. Raises PackageError."""
        await self._check_transform(await self.fetch(location), class_name, tenant)

    async def _check_transform(self, place: Path, class_name: str, tenant: str) -> None:
        await self._code.read_source(SourceQuestion(place, source.TRANSFORM, class_name, tenant=tenant))
        await self._code.check(Question(place, class_name, is_called=True, tenant=tenant))

    async def keep_named(self, upload: Upload, location: PackageLocationMetaData, deadline: Deadline) -> None:
        """Make sure that a package that is now referenced by a record exists.

        A package that was stored long ago and not referenced since may have been removed between the request's check
        and the record. The record protects it from cleanup.
        """
        async with deadline.bound("the change was made, but its package could not be verified"):
            await deadline.ask(lambda: self._packages.keep(upload, location.originalFileName, is_named=True))

    async def check_stored(self, location: PackageLocationMetaData, config: FunctionConfig | ConnectorConfig) -> None:
        """Check the package of a record against another config.

        Raises:
            PackageError: the package does not contain the function.
        """
        if not is_built_in(location):
            place = await self.fetch(location)
            found = await self._code.read_source(source_question(place, config))
            await self._examine(place, found.class_name, config)

    async def _examine(self, place: Path, class_name: str, config: FunctionConfig | ConnectorConfig) -> None:
        """Load the code in another process, except for Spark functions, whose requirements are installed later."""
        if config.runtime_env != SPARK:
            await self._code.check(question_of(place, class_name, config))

    async def fetch(self, location: PackageLocationMetaData) -> Path:
        """Fetch and unpack a record's package, and return its path, which is empty for installed connectors."""
        if is_built_in(location):
            return Path()
        return await self._packages.fetch(package_id(location), package_name(location))


def built_in_location(name: str) -> PackageLocationMetaData:
    """Return the location that replaces the package location in the record of an installed connector."""
    return PackageLocationMetaData(packagePath=BUILT_IN + name)


def is_built_in(location: PackageLocationMetaData) -> bool:
    """Return whether a location is that of an installed connector."""
    return location.packagePath.startswith(BUILT_IN)


def package_id(location: PackageLocationMetaData) -> str:
    """Return the package id from a record's package path.

    Raises:
        PackageError: the path is not ours, for example written by another system.
    """
    identity = location.packagePath.removeprefix(PACKAGE_PREFIX)
    if identity == location.packagePath or not _PACKAGE_ID.fullmatch(identity):
        raise PackageError(f"package path {location.packagePath[:80]!r} is not of the form {PACKAGE_PREFIX}<sha256>")
    return identity


def package_name(location: PackageLocationMetaData) -> str:
    """Return the package's file name from a record, which determines the module.

    Raises:
        PackageError: the name contains a directory, which is unsafe because records may come from other systems.
    """
    name = location.originalFileName
    if name != _bare(name) or not name.endswith(SUFFIXES) or not name.isprintable():
        raise PackageError(
            f"invalid package file name {name[:80]!a}: expected a {', '.join(SUFFIXES)} file without directories"
        )
    return name


def source_question(
    package: Path, config: FunctionConfig | ConnectorConfig, *, finds_state_call: bool = False
) -> SourceQuestion:
    """Return the question about a package's source code (`SourceQuestion`)."""
    found = SourceQuestion(
        package, source.FUNCTION, config.class_name or "", finds_state_call=finds_state_call, tenant=config.tenant or ""
    )
    if isinstance(config, ConnectorConfig):
        kind = source.SINK if isinstance(config, SinkConfig) else source.SOURCE
        found = found._replace(kind=kind, transform=config.transform_function_class_name or "")
    if isinstance(config, SourceConfig):
        found = found._replace(is_batch=bool(config.batch_source_config))
    return found


def question_of(package: Path, class_name: str, config: FunctionConfig | ConnectorConfig) -> Question:
    """Return the question that is answered by loading a package's code in another process; not for Spark functions."""
    if isinstance(config, ConnectorConfig):
        return Question(package, class_name, is_called=False, tenant=config.tenant or "")
    settings = value_settings(to_details(config))
    return Question(package, class_name, is_called=True, settings=settings, tenant=config.tenant or "")


def _bare(path: str) -> str:
    """Return the last component of a POSIX or Windows path."""
    return PureWindowsPath(PurePosixPath(path).name).name


def _file_name(sent: str | None, config: FunctionConfig | ConnectorConfig) -> str:
    """Return the package's file name, which determines the module; an upload without a name uses that of `py`."""
    return _package_name(sent or config.file_name or "", config.class_name or "")


def _package_name(given: str, class_name: str) -> str:
    name = _bare(given) or class_name.split(".")[0] + ".py"
    if not name.endswith(SUFFIXES) or name in SUFFIXES:
        raise RequestRefused(400, f"invalid package {name}: expected a {', '.join(SUFFIXES)} file")
    if not name.isprintable() or len(name.encode()) > NAME_BYTES_MAX:
        raise RequestRefused(400, f"invalid package name {name[:40]!r}: must be 1 to {NAME_BYTES_MAX} printable bytes")
    return name
