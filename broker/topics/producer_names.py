"""Generated producer names, which are as short as those of Apache Pulsar.

Clients count the producer name towards the size of each message, so a longer name reduces the maximum payload size.

Invariant: a name is never generated twice in a cluster. At each start, a broker reserves a new number in the metadata
store before it generates names.
"""

from __future__ import annotations

from ...errors import BadVersion, StorageError
from ...metadata.store.store import ABSENT, MetadataStore

STARTS = "/counters/producer-name"
"""Metadata path of the number of broker starts, in decimal."""


class ProducerNames:
    """Generates the producer names of a broker."""

    def __init__(self, cluster: str, store: MetadataStore) -> None:
        self._cluster = cluster
        self._store = store
        self._start = 0
        self._given = 0

    async def start(self) -> None:
        """Reserve a number for this broker start.

        Cancellation: the number may be skipped, which is harmless.

        Raises:
            StorageError: the metadata store does not respond, or its record is not a number.
        """
        while True:
            record = await self._store.get(STARTS)
            self._start = 0 if record is None else _number(record.value)
            try:
                version = ABSENT if record is None else record.version
                await self._store.put(STARTS, str(self._start + 1).encode(), version)
                return
            except BadVersion:
                continue  # another broker of the cluster has reserved that number

    def next(self) -> str:
        """Return a new name that is unique in the cluster."""
        self._given += 1
        return f"{self._cluster}-{self._start}-{self._given}"


def _number(value: bytes) -> int:
    try:
        return int(value)
    except ValueError as error:
        raise StorageError(
            f"metadata record {STARTS} is {value!r}, not a number: replace it with a number higher than the one in any"
            " generated producer name, for example higher than 7 if there is a producer standalone-7-1"
        ) from error
