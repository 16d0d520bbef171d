"""Epochs of topics in the metadata store, which fence earlier exclusive producers."""

from __future__ import annotations

from ...errors import StorageError
from ...metadata.store.store import MetadataStore
from ...wire.topic_name import TopicName

ROOT = "/admin/topic-epochs"


async def read_epoch(store: MetadataStore, name: TopicName) -> int | None:
    """Return a topic's epoch, None if it never had an exclusive producer.

    Raises:
        StorageError: the record is no number; names it.
    """
    path = epoch_path(name)
    record = await store.get(path)
    if record is None:
        return None
    try:
        return int(record.value)
    except ValueError as error:
        raise StorageError(
            f"metadata record {path} holds {record.value[:20]!r} and no epoch; correct or delete it there"
        ) from error


def epoch_path(name: TopicName) -> str:
    """Return the path of the record that holds a topic's epoch."""
    return f"{ROOT}/{name.rest_path}"
