"""Epochs of topics in the metadata store, which fence earlier exclusive producers."""

from __future__ import annotations

from urllib.parse import quote

from ...errors import StorageError
from ...metadata.store.store import MetadataStore
from ...wire.topic_name import TopicName

ROOT = "/admin/topic-epochs"


class TopicEpochs:
    """Reads and writes epochs."""

    def __init__(self, store: MetadataStore):
        self._store = store

    async def read(self, name: TopicName) -> int | None:
        """Return a topic's epoch, None if it never had an exclusive producer.

        Raises:
            StorageError: the record is no number; names it.
        """
        record = await self._store.get(_path(name))
        if record is None:
            return None
        try:
            return int(record.value)
        except ValueError as error:
            raise StorageError(
                f"metadata record {_path(name)} holds {record.value[:20]!r} and no epoch; correct or delete it there"
            ) from error

    async def write(self, name: TopicName, epoch: int) -> None:
        """Write an epoch; returns when it is durable."""
        await self._store.put(_path(name), str(epoch).encode())

    async def forget(self, name: TopicName) -> None:
        """Forget a deleted topic's epoch."""
        await self._store.delete(_path(name))


def _path(name: TopicName) -> str:
    return f"{ROOT}/{name.domain}/{name.tenant}/{name.namespace}/{quote(name.local, safe='')}"
