"""Names of producers that choose none, as short as Apache Pulsar's.

Clients count the name of a producer as a part of its messages: a longer one leaves less room for the largest message.

Invariant: no name is given out twice in a cluster. Each start of a broker takes a number of its own, which the metadata
store keeps before the first name is made.
"""

from __future__ import annotations

from ...errors import BadVersion, StorageError
from ...metadata.store.store import ABSENT, MetadataStore

STARTS = "/counters/producer-name"
"""How many brokers have been started, in decimal."""


class ProducerNames:
    """The names that one broker gives to producers."""

    def __init__(self, cluster: str, store: MetadataStore) -> None:
        self._cluster = cluster
        self._store = store
        self._start = 0
        self._given = 0

    async def start(self) -> None:
        """Take the number of this start.

        Cancellation: the number is lost, which does no harm.

        Raises:
            StorageError: the metadata store does not answer, or its record is not a number.
        """
        while True:
            record = await self._store.get(STARTS)
            self._start = 0 if record is None else _number(record.value)
            try:
                version = ABSENT if record is None else record.version
                await self._store.put(STARTS, str(self._start + 1).encode(), version)
                return
            except BadVersion:
                continue  # another broker of the cluster took that number

    def next(self) -> str:
        """Return a name that no producer of the cluster has or had."""
        self._given += 1
        return f"{self._cluster}-{self._start}-{self._given}"


def _number(value: bytes) -> int:
    try:
        return int(value)
    except ValueError as error:
        raise StorageError(
            f"metadata record {STARTS} is {value!r}, not a number: replace it with one higher than in any generated"
            " producer name, such as 7 in standalone-7-1"
        ) from error
