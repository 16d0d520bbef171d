"""Package store: stores function packages in topics, and extracts them once per worker.

Design: a package's id is the SHA-256 of its content. The package is stored in the topic ``package-<sha256>`` of the
functions namespace, as plain messages of 1 MiB with the properties index, total and name. A durable subscription
retains them. A writer sends in order and waits for all receipts, so a topic whose last message has the last index is
complete. A reader places parts by index (two writers of one id write the same bytes) and checks the hash at the end. A
package that was complete while a function referred to it is assumed complete for `NAMED_S`, so that many functions with
the same package need only one check of its topic. On a worker's disk, an archive is a directory that is named after the
id and created by a single rename, so it is either complete or absent. Modules have a separate directory
(`MODULES_SUFFIX`), because the same content may be uploaded as both.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
import os
import shutil
import uuid
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import BinaryIO, Protocol

from ..errors import PackageError
from .packages_extract import extract, module_root

MAX_PACKAGE_BYTES = 256 * 1024 * 1024
PART_BYTES = 1024 * 1024
NAMED_S = 60.0
"""How long a package that was complete and in use is assumed to be complete without checking its topic.

A package is deleted after being unused for an hour, so it exists for at least that long. If its topic is lost for other
reasons, the first deployment after this period stores it again.
"""

MODULES_SUFFIX = ".py"
"""Directory suffix for content that was uploaded as a module instead of an archive."""

_INCOMING = ".incoming"
_SMALL_BYTES = 64 * 1024


PartWriter = Callable[[bytes, Mapping[str, str]], Awaitable[None]]
"""Sends one part with its properties, and returns once it is durable."""


class PackageTopics(Protocol):
    """Storage for package parts. `worker` implements it with topics."""

    def write(self, package_id: str) -> AbstractAsyncContextManager[PartWriter]:
        """Open the package's topic with its durable subscription for writing."""

    def read(self, package_id: str) -> AsyncIterator[tuple[bytes, Mapping[str, str]]]:
        """Yield all parts that are in the topic at the time of the call."""

    async def last_properties(self, package_id: str) -> Mapping[str, str] | None:
        """Return the properties of the topic's last message, or None if the topic is empty or missing."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A received package: a file in the incoming directory, its id, and its size in bytes."""

    path: Path
    package_id: str
    size: int


class PackageStore:
    """Receives packages, stores them in topics and fetches them for instances."""

    def __init__(self, directory: Path, topics: PackageTopics, clock: Callable[[], float] = monotonic) -> None:
        """Create a store that extracts packages in ``directory``; ``clock`` returns monotonic seconds."""
        self._directory = directory
        self._topics = topics
        self._clock = clock
        self._named_at_s: dict[str, float] = {}
        self._fetching: dict[str, asyncio.Lock] = {}
        self._in_use: Counter[str] = Counter()

    def prepare(self) -> None:
        """Create the directories and remove incomplete files left by a crash. Blocking."""
        shutil.rmtree(self._directory / _INCOMING, ignore_errors=True)
        (self._directory / _INCOMING).mkdir(parents=True)

    @contextlib.contextmanager
    def used(self, package_id: str) -> Iterator[None]:
        """Context that protects a package from removal while no function refers to it yet."""
        self._in_use[package_id] += 1
        try:
            yield
        finally:
            self._in_use[package_id] -= 1
            if not self._in_use[package_id]:
                del self._in_use[package_id]

    def in_use(self) -> set[str]:
        """Return the packages protected by `used`."""
        return set(self._in_use)

    async def receive(self, chunks: AsyncIterable[bytes]) -> Upload:
        """Write an upload to disk and return it. The caller must call `keep` or `discard` for it.

        Raises:
            PackageError: the upload is empty or exceeds the limit.
        """
        path = self._directory / _INCOMING / uuid.uuid4().hex
        digest = hashlib.sha256()
        size = 0
        try:
            with path.open("wb") as file:  # on the event loop: opening in a thread would outlive a cancelled wait
                async for chunk in _joined(chunks):
                    size += len(chunk)
                    if size > MAX_PACKAGE_BYTES:
                        raise PackageError(
                            f"the package is larger than {MAX_PACKAGE_BYTES // 2**20} MiB: remove unneeded files"
                        )
                    if len(chunk) < _SMALL_BYTES:
                        _write(file, digest, chunk)  # cheaper than a switch to a thread and back
                    else:
                        await asyncio.to_thread(_write, file, digest, chunk)
            if size == 0:
                raise PackageError("the package is empty: expected a .py, .zip or .whl file with the function")
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return Upload(path, digest.hexdigest(), size)

    async def unpack(self, upload: Upload, name: str) -> Path:
        """Extract an upload to its directory for instances, and return the path for an instance.

        Args:
            upload: the received package.
            name: file name, whose suffix determines the type.

        Raises:
            PackageError: the upload is not a readable .py, .zip or .whl file.
        """
        return await asyncio.to_thread(self._install, upload.path, upload.package_id, name)

    async def keep(self, upload: Upload, name: str, *, is_named: bool = False) -> None:
        """Store an upload durably in its topic.

        Args:
            upload: the received package.
            name: file name.
            is_named: whether a function's record already refers to the package.

        Cancellation: an incomplete package may remain, to which no function refers.
        """
        began_s = self._clock()
        if began_s - self._named_at_s.get(upload.package_id, -math.inf) < NAMED_S:
            return
        if not await self._is_complete(upload.package_id):
            await self._write(upload, name)
        if is_named:
            recent = {one: at_s for one, at_s in self._named_at_s.items() if began_s - at_s < NAMED_S}
            self._named_at_s = {**recent, upload.package_id: began_s}

    async def _write(self, upload: Upload, name: str) -> None:
        total = -(-upload.size // PART_BYTES)
        async with self._topics.write(upload.package_id) as send:
            with upload.path.open("rb") as file:  # on the event loop, as in `receive`
                for index in range(total):
                    part = await asyncio.to_thread(file.read, PART_BYTES)
                    await send(part, {"index": str(index), "total": str(total), "name": name})

    async def _is_complete(self, package_id: str) -> bool:
        index, total = _numbers(await self._topics.last_properties(package_id) or {})
        return total > 0 and index == total - 1

    async def discard(self, upload: Upload) -> None:
        """Delete an upload's file."""
        await asyncio.to_thread(upload.path.unlink, missing_ok=True)

    async def fetch(self, package_id: str, name: str) -> Path:
        """Return the extracted package, reading it from its topic if this worker does not have it yet.

        Raises:
            PackageError: the topic does not contain the whole package.
        """
        lock = self._fetching.setdefault(package_id, asyncio.Lock())
        try:
            async with lock:
                present = await asyncio.to_thread(self._present, package_id, name)
                return present or await self._download(package_id, name)
        finally:
            if not lock.locked():
                self._fetching.pop(package_id, None)

    def _present(self, package_id: str, name: str) -> Path | None:
        if name.endswith(".py"):
            file = self._modules_of(package_id) / name
            return file if file.is_file() else None
        directory = self._directory / package_id
        return module_root(directory) if directory.is_dir() else None

    async def _download(self, package_id: str, name: str) -> Path:
        path = await self.assemble(package_id)
        try:
            return await asyncio.to_thread(self._install, path, package_id, name)
        finally:
            await asyncio.to_thread(path.unlink, missing_ok=True)

    def local_ids(self) -> list[str]:
        """Return the ids of the packages on this machine. Blocking."""
        names = {child.name.removesuffix(MODULES_SUFFIX) for child in self._directory.iterdir()}
        return sorted(names - {_INCOMING})

    def directory_of(self, package_id: str) -> Path:
        """Return the directory of an archive on this machine, whether it exists or not."""
        return self._directory / package_id

    def _modules_of(self, package_id: str) -> Path:
        return self._directory / f"{package_id}{MODULES_SUFFIX}"

    def remove_local(self, package_id: str) -> None:
        """Delete a package from this machine; it can be fetched later. Blocking."""
        for directory in self.withdraw(package_id):
            shutil.rmtree(directory, ignore_errors=True)

    def withdraw(self, package_id: str) -> list[Path]:
        """Move a package out of the instances' reach, and return the directories, which the caller must delete.

        Each directory is moved by a single rename, so that a partially deleted package is never taken for a complete
        one.
        """
        doomed = []
        for directory in (self._directory / package_id, self._modules_of(package_id)):
            target = self._directory / _INCOMING / uuid.uuid4().hex
            with contextlib.suppress(FileNotFoundError):
                directory.rename(target)
                doomed.append(target)
        return doomed

    async def assemble(self, package_id: str) -> Path:
        """Write a package from its topic to a file in the incoming directory. The caller must delete the file.

        Raises:
            PackageError: parts are missing, or the content does not match the id.
        """
        path = self._directory / _INCOMING / uuid.uuid4().hex
        try:
            with path.open("wb") as file:  # on the event loop, as in `receive`
                seen, total = await self._read_parts(package_id, file)
            if not total or len(seen) < total:
                raise PackageError(f"package {package_id} is incomplete: {len(seen)} of {total} parts are stored")
            if await asyncio.to_thread(_sha256, path) != package_id:
                raise PackageError(f"package {package_id} is damaged, as its content hash does not match: redeploy it")
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return path

    async def _read_parts(self, package_id: str, file: BinaryIO) -> tuple[set[int], int]:
        seen: set[int] = set()
        known_total = 0
        async for part, properties in self._topics.read(package_id):
            index, total = _numbers(properties)
            if not 0 <= index < total <= MAX_PACKAGE_BYTES // PART_BYTES or len(part) > PART_BYTES:
                raise PackageError(
                    f"package {package_id} contains a message that is not a package part: {dict(properties)}"
                )
            known_total = total
            seen.add(index)
            await asyncio.to_thread(os.pwrite, file.fileno(), part, index * PART_BYTES)
        return seen, known_total

    def _install(self, content: Path, package_id: str, name: str) -> Path:
        if name.endswith(".py"):
            return _install_file(content, self._modules_of(package_id), name)
        target = self._directory / package_id
        if not target.is_dir():
            fresh = self._directory / _INCOMING / uuid.uuid4().hex
            try:
                extract(content, fresh, name)
                _rename_directory(fresh, target)
            finally:
                shutil.rmtree(fresh, ignore_errors=True)
        return module_root(target)


def _install_file(content: Path, directory: Path, name: str) -> Path:
    """Install a module file. The same content may be used under several names, each of which needs a file."""
    directory.mkdir(exist_ok=True)
    target = directory / name
    if not target.is_file():
        fresh = directory / f".{uuid.uuid4().hex}"
        shutil.copyfile(content, fresh)
        fresh.rename(target)
    return target


def _rename_directory(fresh: Path, target: Path) -> None:
    try:
        fresh.rename(target)
    except OSError:
        # Another fetch was faster. A non-empty directory is never replaced, and its content is the same.
        if not target.is_dir():
            raise


def _write(file: BinaryIO, digest: hashlib._Hash, chunk: bytes) -> None:
    digest.update(chunk)
    file.write(chunk)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def _joined(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Join chunks to about 1 MiB, to reduce the number of switches to the writer thread."""
    waiting: list[bytes] = []
    size = 0
    async for chunk in chunks:
        waiting.append(chunk)
        size += len(chunk)
        if size >= PART_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)


def _numbers(properties: Mapping[str, str]) -> tuple[int, int]:
    try:
        return int(properties["index"]), int(properties["total"])
    except (KeyError, ValueError):
        return -1, 0
