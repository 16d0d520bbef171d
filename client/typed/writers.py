"""Cache of writer schemas, the schemas that messages were written with. It has the lifetime of the client.

Design: a version of a topic's schema never changes, so it is fetched only once. Permanent errors (the schema was
deleted) are cached as well; after any other failure, the next message retries. A recreated topic restarts its version
numbers, and detaches its consumers, so the topic's cache is dropped whenever a consumer attaches.
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
"""Full topic name without partition, and a schema version; an empty version means the newest one at that time."""

TOPICS_MAX = 10_000
"""Maximum number of topics with cached schemas; beyond it, the oldest is dropped."""
VERSIONS_MAX = 1000
"""Maximum number of cached schemas per topic; beyond it, the oldest is dropped."""


@lru_cache(maxsize=1024)
def base_of(topic: str) -> str:
    """Return the full name of a topic without its partition."""
    return parse_topic_name(topic).base.text


def key_of(topic: str, version: bytes) -> Key:
    """Return the cache key of a topic's schema, which is shared by its partitions."""
    return base_of(topic), version


class WriterSchemas:
    """Cached schemas by topic and version; unavailable schemas are cached as errors."""

    def __init__(self, fetch: Fetch):
        self._fetch = fetch
        self._topics: dict[str, dict[bytes, SchemaInfo | BrokerError]] = {}

    def get(self, key: Key) -> SchemaInfo | BrokerError | None:
        """Return a cached schema or the broker's error, or None if it has not been fetched."""
        topic, version = key
        known = self._topics.get(topic)
        return None if known is None else known.get(version)

    def forget(self, topic: str) -> None:
        """Drop the cached schemas of a topic; results of requests in flight are not cached."""
        self._topics.pop(base_of(topic), None)

    async def find(self, key: Key) -> SchemaInfo:
        """Return a schema, fetching it from the broker if it is not cached.

        Cancellation: safe.

        Raises:
            MagnetarError: the schema cannot be fetched.
        """
        found = self.get(key) or await self.ask(key)
        if isinstance(found, MagnetarError):
            raise found.with_traceback(None)
        return found

    async def ask(self, key: Key) -> SchemaInfo | MagnetarError:
        """Fetch a schema from the broker; return the schema, or the error if it is unavailable.

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
