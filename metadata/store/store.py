"""The metadata store: small versioned values under slash-separated paths, with watches.

Design: all metadata (tenants, clusters, policies, partitioned topics, schemas) is one tree of paths, like Pulsar's in
ZooKeeper, so that SQLite (one machine) and ZooKeeper (an ensemble) are interchangeable. Both implement the semantics
below; `tests/conformance/metadata_store.py` checks every sentence on each provider.

* A **path** is ``/name/name…`` without the characters that ZooKeeper rejects (control characters, private use, those
  beyond the basic plane); ``/zookeeper`` is reserved. A **record** is a value of 1 to `MAX_VALUE_BYTES` bytes with a
  version. Empty values do not exist: ZooKeeper needs a node for every parent, and an empty node means that there is
  only a parent and not a record.
* **Parents** need not exist. For a path without a record but with records below it, `get` returns None, and the
  `children` of its parent include it until the last record below it is deleted.
* **Versions** are non-negative and increase with each `put` during the record's lifetime. They show whether a value is
  still the one that was read; after a deletion they may restart.
* **Operations take effect one after the other**, in the order in which one task issues them, and an operation returns
  only once its effect is durable. An operation that fails with `BadVersion` or `StorageError` has no effect, except
  that the effect is unknown when the connection to a remote store breaks during a write.
* **Watches** report paths, not values, after the change is durable: at least once after the last change of each path,
  in order for each path. Changes in quick succession may be merged.

Rejected: transactions over several paths. Only Pulsar's transactions and bundle splits would use them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, Protocol

from ...errors import BadVersion, InvalidConfig

ABSENT = -1
"""Value of ``expected_version`` if the record must not exist."""
MAX_VALUE_BYTES = 1_000_000
"""Maximum size of a value. ZooKeeper rejects packets above 1 MiB."""
MAX_PATH_BYTES = 4096
"""Maximum length of a path. Topic names are at most 1,024 bytes, which URL encoding can triple."""


_REFUSED = re.compile("[\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")


class Record(NamedTuple):
    """A value and its version."""

    value: bytes
    version: int


class Change(NamedTuple):
    """Creation, replacement or deletion of a record; ``version`` is None for a deletion."""

    path: str
    version: int | None


class Watch(Protocol):
    """An active watch."""

    def close(self) -> None:
        """Stop the watch. The callback is not called afterwards. Closing twice is harmless."""


class MetadataStore(Protocol):
    """A tree of versioned values. The module docstring defines the exact semantics.

    Each method may raise `StorageError` if the store is full or damaged (`MetadataUnavailable` if it is unreachable),
    `ClosedError` after `close`, and `InvalidConfig` for a path or value that exceeds the limits.

    Cancellation: the operation is still executed.
    """

    async def get(self, path: str) -> Record | None:
        """Return the record at ``path``, or None."""

    async def put(self, path: str, value: bytes, expected_version: int | None = None) -> int:
        """Write a record and return its new version.

        Args:
            path: record path.
            value: 1 to `MAX_VALUE_BYTES` bytes.
            expected_version: the current version, `ABSENT` to create only, or None to write unconditionally.

        Raises:
            BadVersion: the record has another version, already exists, or no longer exists.
        """

    async def delete(self, path: str, expected_version: int | None = None) -> bool:
        """Delete a record, but not those below it, and return whether it existed.

        Raises:
            BadVersion: ``expected_version`` is not None, and the record has another version or does not exist.
        """

    async def children(self, path: str) -> list[str]:
        """Return the sorted names directly below ``path``; ``/`` is the root."""

    def watch(self, prefix: str, callback: Callable[[Change], None]) -> Watch:
        """Call ``callback`` on the running loop for each change at or below ``prefix``. It must not raise."""

    async def close(self) -> None:
        """Finish queued operations and release the store."""


def check_path(path: str) -> str:
    """Return ``path`` if it is well-formed.

    Raises:
        InvalidConfig: the path is malformed.
    """
    names = path.split("/")
    if names[0] or len(names) < 2 or any(name in ("", ".", "..") for name in names[1:]) or names[1] == "zookeeper":
        raise InvalidConfig(
            f"invalid metadata path {path!r}: expected /name/name without empty names, `.`, `..`, not below /zookeeper"
        )
    if refused := _REFUSED.search(path):
        raise InvalidConfig(f"invalid metadata path {path!r}: character {refused[0]!r} is not allowed")
    if (size := len(path.encode())) > MAX_PATH_BYTES:
        raise InvalidConfig(f"metadata path of {size} bytes exceeds the limit of {MAX_PATH_BYTES}: {path[:60]}…")
    return path


def check_value(path: str, value: bytes) -> bytes:
    """Return ``value`` if its size is allowed.

    Raises:
        InvalidConfig: the value is empty or too large.
    """
    if not 0 < len(value) <= MAX_VALUE_BYTES:
        raise InvalidConfig(
            f"invalid metadata value of {len(value)} bytes for {path}: expected 1 to {MAX_VALUE_BYTES} bytes"
        )
    return value


def check_version(path: str, version: int | None, expected: int) -> None:
    """Compare a record's version (None if it does not exist) with the expected version.

    Raises:
        BadVersion: the versions differ.
    """
    if expected != (ABSENT if version is None else version):
        found = "the record does not exist" if version is None else f"it has version {version}"
        wanted = "no record" if expected == ABSENT else f"version {expected}"
        raise BadVersion(f"metadata record {path}: expected {wanted}, but {found}: reread it")
