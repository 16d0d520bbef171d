"""Fetches the schemas of topics with blocking requests, and caches each version.

A registry belongs to one plan or one task: a recreated topic restarts its version numbers, so schemas from before must
not be used.
"""

from __future__ import annotations

import time

from ....client.schemas.schema import BYTES, SchemaInfo
from ....errors import BrokerError, ConnectionLost, OperationTimeout, SchemaSerializationError
from ....tasks import Backoff
from ....wire.topic_name import TopicName
from ..connection import Routes

_BACKOFF_S = (0.05, 2.0)
_VERSION_BYTES = 8
OLDER_MAX = 100
"""Maximum number of older versions to search for a column that the newest version lacks."""
NO_SCHEMA = SchemaInfo(BYTES)


class SchemaRegistry:
    """Schemas by topic and version."""

    def __init__(self, routes: Routes, patience_s: float = 0.0):
        """Create an empty registry.

        Args:
            routes: connects to the brokers.
            patience_s: time limit for retries if a broker does not answer.
        """
        self._routes = routes
        self._patience_s = patience_s
        self._known: dict[tuple[str, bytes], SchemaInfo | None] = {}
        self._newest: dict[str, bytes] = {}

    def newest(self, topic: TopicName) -> SchemaInfo:
        """Return a topic's newest schema at the time of the first request, or `NO_SCHEMA`.

        Raises:
            MagnetarError: the request failed.
        """
        name = topic.base.text
        if name not in self._newest:
            found = self._ask(topic, None)
            info, version = (NO_SCHEMA, b"") if found is None else found
            self._newest[name] = version
            self._known[name, version] = info
        return self._known[name, self._newest[name]] or NO_SCHEMA

    def of_version(self, topic: TopicName, version: bytes) -> SchemaInfo:
        """Return the schema of messages with a version, or the newest schema for messages without a version.

        Raises:
            SchemaSerializationError: the topic does not have this version.
            MagnetarError: the request failed.
        """
        if not version:
            return self.newest(topic)
        by = topic.base.text, version
        if by not in self._known:
            # Brokers close the connection on a request for any other length.
            found = self._ask(topic, version) if len(version) == _VERSION_BYTES else None
            self._known[by] = None if found is None else found[0]
        info = self._known[by]
        if info is None:
            raise SchemaSerializationError(f"the broker no longer has version 0x{version.hex()} of the topic's schema")
        return info

    def older(self, topic: TopicName) -> list[SchemaInfo]:
        """Return the versions before the newest one, latest first; raises the same errors as `newest`."""
        self.newest(topic)
        last = int.from_bytes(self._newest[topic.base.text])
        found = []
        for number in range(last - 1, max(-1, last - 1 - OLDER_MAX), -1):
            answer = self._ask(topic, number.to_bytes(_VERSION_BYTES))
            if answer is not None:
                found.append(answer[0])
        return found

    def _ask(self, topic: TopicName, version: bytes | None) -> tuple[SchemaInfo, bytes] | None:
        deadline = time.monotonic() + self._patience_s
        backoff = Backoff(*_BACKOFF_S)
        while True:
            try:
                return self._routes.schema(topic, version)
            except (ConnectionLost, OperationTimeout, BrokerError) as error:
                pause_s = backoff.next_s()
                if getattr(error, "is_final", False) or time.monotonic() + pause_s >= deadline:
                    raise
                time.sleep(pause_s)
