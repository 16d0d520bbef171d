"""Cache of writer schemas, the schemas that messages were written with; lives as long as the client.

Design: a version of a topic's schema never changes, so it is fetched once. A permanent refusal (the schema was deleted)
is cached too; after any other failure the next message fetches again. A recreated topic numbers its versions from the
beginning, and its consumers are detached meanwhile: so whenever a consumer attaches, the topic's cache is dropped.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import lru_cache

from ...errors import BrokerError, MagnetarError
from ...wire.topic_name import TopicName, parse_topic_name
from ..schemas.schema import SchemaInfo

Fetch = Callable[[TopicName, bytes | None], Awaitable[SchemaInfo]]
"""Fetches a topic's schema in one version from the broker; None for the newest."""

Key = tuple[str, bytes]
"""Full name of a topic, without partition, and a schema version; the empty version is the newest at that time."""

TOPICS_MAX = 10_000
"""Limit of topics with cached schemas; beyond it the oldest is dropped."""
VERSIONS_MAX = 1000
"""Limit of cached schemas per topic, likewise."""


@lru_cache(maxsize=1024)
def base_of(topic: str) -> str:
    """Return the full name of a topic without its partition."""
    return parse_topic_name(topic).base.text


def key_of(topic: str, version: bytes) -> Key:
    """Return the cache key of a topic's schema; partitions share it."""
    return base_of(topic), version


class WriterSchemas:
    """Cached schemas of topics by version, or the error for unavailable ones."""

    def __init__(self, fetch: Fetch):
        self._fetch = fetch
        self._topics: dict[str, dict[bytes, SchemaInfo | BrokerError]] = {}

    def get(self, key: Key) -> SchemaInfo | BrokerError | None:
        """Return a cached schema, or the broker's error for it; None if it has not been fetched."""
        topic, version = key
        known = self._topics.get(topic)
        return None if known is None else known.get(version)

    def forget(self, topic: str) -> None:
        """Drop the cached schemas of a topic; results of requests in flight are not cached."""
        self._topics.pop(base_of(topic), None)

    async def find(self, key: Key) -> SchemaInfo:
        """Return a schema, asking the broker for it if it is not known.

        Cancellation: safe.

        Raises:
            MagnetarError: it is not to be had.
        """
        found = self.get(key) or await self.ask(key)
        if isinstance(found, MagnetarError):
            raise found.with_traceback(None)
        return found

    async def ask(self, key: Key) -> SchemaInfo | MagnetarError:
        """Ask the broker for a schema and return it, or why it is not to be had.

        Cancellation: safe.
        """
        topic, version = key
        if topic not in self._topics:
            while len(self._topics) >= TOPICS_MAX:
                del self._topics[next(iter(self._topics))]
            self._topics[topic] = {}
        known = self._topics[topic]
        found: SchemaInfo | BrokerError
        try:
            found = await self._fetch(parse_topic_name(topic), version or None)
        except BrokerError as error:
            if not error.is_final:
                return error
            found = error
        except MagnetarError as error:
            return error
        while len(known) >= VERSIONS_MAX:
            del known[next(iter(known))]
        known[version] = found
        return found
