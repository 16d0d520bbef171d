"""Index of packages uploaded under a name, `type://tenant/namespace/name@version`.

Design: a topic, which every worker reads, contains one record per package, keyed by its name; the content is stored
like that of a function. To make a change, a worker acquires exclusive access to the topic, reads it to the end, decides
and writes. Two workers therefore never decide concurrently, and no leader is needed. A function created from a package
references the content, and retains it when the package is deleted.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from ...errors import ProducerBusy, ProducerFenced, RequestRefused
from ...metadata.replicated_log import LogRecord, LogStorage, ReplicatedLog
from ...tasks import Backoff, Retry

TYPES = ("function", "sink", "source")
NAME_BYTES_MAX = 128
WRITE_TIMEOUT_S = 15.0
"""Time limit in seconds for a change to wait for changes of other workers."""
_PAUSE_S = 0.1

Json = dict[str, Any]
Decide = Callable[[Json | None], Json | None]
"""Given the existing record, returns the new record, or None to delete it; raises RequestRefused."""


@dataclass(frozen=True, slots=True)
class PackageName:
    """Name of a package."""

    type: str
    tenant: str
    namespace: str
    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.type}://{self.tenant}/{self.namespace}/{self.name}@{self.version}"


def package_name_of(kind: str, *parts: str) -> PackageName:
    """Return the package name for a kind and the parts tenant, namespace, name and version.

    Raises:
        RequestRefused: 412, the name is invalid.
    """
    if kind.lower() not in TYPES:
        raise RequestRefused(412, f"Invalid package domain: '{kind[:40]}': expected {', '.join(TYPES)}")
    if not all(part and _is_plain(part) for part in parts):
        raise RequestRefused(
            412, f"Invalid package name '{kind}://{'/'.join(parts[:3])[:120]}@{parts[3][:40]}': each part has 1 to"
            f" {NAME_BYTES_MAX} printable bytes, without / and @, and is not . or ..",
        )  # fmt: skip
    return PackageName(kind.lower(), *parts)


def parse_package_url(url: str) -> PackageName:
    """Parse a package URL; the version defaults to `latest`. Raises RequestRefused, 412."""
    kind, _, rest = url.partition("://")
    path, _, version = rest.partition("@")
    parts = path.split("/")
    if len(parts) != 3:
        raise RequestRefused(
            412, f"Invalid package name '{url[:200]}': expected {kind}://tenant/namespace/name@version"
        )
    return package_name_of(kind, *parts, version or "latest")


def _is_plain(part: str) -> bool:
    try:
        size = len(part.encode())
    except UnicodeEncodeError:
        return False
    # "." and "..": HTTP clients normalize them out of a URL before sending it.
    return size <= NAME_BYTES_MAX and part.isprintable() and not {"/", "@"} & set(part) and part not in (".", "..")


class PackageIndex:
    """A worker's view of the packages of a cluster. Bound to one event loop."""

    def __init__(
        self, storage: LogStorage, writer_name: str, on_change: Callable[[Iterable[str]], None] = lambda ids: None
    ) -> None:
        """Create an empty index; `log.run` fills it.

        Args:
            storage: stores the records.
            writer_name: producer name of this worker.
            on_change: called with the content ids referenced by a changed record before and after the change.
        """
        self.log = ReplicatedLog(storage, self._apply, "packages", "record")
        self._writer_name = writer_name
        self._on_change = on_change
        self._held: dict[str, Json] = {}
        self._turn = asyncio.Lock()

    def _apply(self, key: str | None, value: bytes, _: Mapping[str, str]) -> None:
        if not key:
            raise ValueError("record without a key")
        record = json.loads(value) if value else None
        if value and (not isinstance(record, dict) or not isinstance(record.get("packageId"), str)):
            raise ValueError(f"record of {key[:100]} is not a package")
        before = self._held.pop(key, None)
        if record is not None:
            self._held[key] = record
        self._on_change([one["packageId"] for one in (before, record) if one is not None])

    def package_ids(self) -> Iterable[str]:
        """Return the content ids of all packages."""
        return [record["packageId"] for record in self._held.values()]

    async def get(self, name: PackageName) -> Json:
        """Return the newest record of a package, which must not be modified. Raises RequestRefused, 404."""
        await self.log.catch_up()
        record = self._held.get(str(name))
        if record is None:
            raise RequestRefused(404, f"Package '{name}' does not exist")
        return record

    async def names(self, kind: str, tenant: str, namespace: str) -> list[PackageName]:
        """Return all packages of a namespace, sorted by name."""
        await self.log.catch_up()
        found = map(parse_package_url, sorted(self._held))
        return [one for one in found if (one.type, one.tenant, one.namespace) == (kind, tenant, namespace)]

    async def change(self, name: PackageName, decide: Decide) -> None:
        """Decide and write a record, and return once it is durable.

        Cancellation: the record may still be written.

        Raises:
            RequestRefused: raised by `decide`; or 503, other workers blocked the change.
        """
        async with self.undecided():
            self.log.lead(self.log.follow)
            async with self.log.turn() as turn:
                assert turn is not None  # the log is leading since the line above
                record = decide(self._held.get(str(name)))
                value = b"" if record is None else json.dumps(record).encode()
                await turn.append([LogRecord(str(name), value)])

    @asynccontextmanager
    async def undecided(self) -> AsyncIterator[None]:
        """Context manager that blocks changes by all workers, after all earlier changes have been read.

        Raises:
            RequestRefused: 503, other workers did not release the index in time.
        """
        async with self._turn:
            busy = Retry((ProducerBusy, ProducerFenced), Backoff(_PAUSE_S, _PAUSE_S), is_final=lambda _: False)
            try:
                async with asyncio.timeout(WRITE_TIMEOUT_S):
                    await busy.call(lambda: self.log.open(self._writer_name))
            except TimeoutError:
                raise RequestRefused(503, "another worker is changing packages: retry the request") from None
            try:
                await self.log.catch_up()
                yield
            finally:
                self.log.follow()
                await self.log.close()
