"""A builder for output messages: the result of `Context.new_output_message`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

Publish = Callable[["OutputMessage", Callable[[Any, Any], None] | None], None]
"""Sends a message and passes the result to the callback, if any."""


class OutputMessage:
    """An unsent message. All methods except `send` and `send_async` return the message itself.

    Values are validated on sending, as in `Context.publish`.

    Attributes:
        topic: destination topic.
        serde_class_name: SerDe for the value.
        payload: the value, or None for a message without a value, which deletes its key from a compacted topic.
        conf: the other fields, in the format of ``message_conf`` of `Context.publish`.
        key_is_bytes: whether the key was set as bytes.
    """

    __slots__ = ("_publish", "conf", "key_is_bytes", "payload", "serde_class_name", "topic")

    def __init__(self, topic: str, serde_class_name: str, publish: Publish) -> None:
        """Create a message without a value. ``publish`` sends it."""
        self.topic = topic
        self.serde_class_name = serde_class_name
        self.payload: Any = None
        self.conf: dict[str, Any] = {}
        self.key_is_bytes = False
        self._publish = publish

    def value(self, value: Any) -> OutputMessage:
        """Set the value for the SerDe, or None for no value."""
        self.payload = value
        return self

    def key(self, key: str) -> OutputMessage:
        """Set the key, which selects the partition and is used by compaction."""
        self.key_is_bytes = False
        return self._set("partition_key", key)

    def key_bytes(self, key: bytes) -> OutputMessage:
        """Set the key as bytes."""
        self.key_is_bytes = True
        return self._set("partition_key", key)

    def ordering_key(self, ordering_key: bytes) -> OutputMessage:
        """Set the ordering key, which Key_Shared subscriptions use instead of the key."""
        return self._set("ordering_key", ordering_key)

    def property(self, name: str, value: str) -> OutputMessage:
        """Add a property."""
        return self.properties({name: value})

    def properties(self, properties: Mapping[str, str]) -> OutputMessage:
        """Add properties."""
        return self._set("properties", {**self.conf.get("properties", {}), **properties})

    def event_time(self, event_time_ms: int) -> OutputMessage:
        """Set the event time in milliseconds since 1970."""
        return self._set("event_timestamp", event_time_ms)

    def sequence_id(self, sequence_id: int) -> OutputMessage:
        """Set the producer's sequence ID. IDs must increase."""
        return self._set("sequence_id", sequence_id)

    def deliver_at(self, deliver_at_ms: int) -> OutputMessage:
        """Delay delivery on Shared and Key_Shared subscriptions until a time in milliseconds since 1970."""
        return self._set("deliver_at", deliver_at_ms)

    def deliver_after(self, delay: timedelta) -> OutputMessage:
        """Delay delivery on Shared and Key_Shared subscriptions by a duration after sending."""
        return self._set("deliver_after", delay)

    def replication_clusters(self, clusters: list[str]) -> OutputMessage:
        """Raise an error on sending, because replication to other clusters is not supported."""
        return self._set("replication_clusters", clusters)

    def disable_replication(self) -> OutputMessage:
        """Raise an error on sending, because replication to other clusters is not supported."""
        return self._set("disable_replication", True)

    def load_conf(self, conf: Mapping[str, Any]) -> OutputMessage:
        """Set several fields by their names in ``message_conf`` of `Context.publish`."""
        self.conf.update(conf)
        return self

    def _set(self, name: str, value: Any) -> OutputMessage:
        self.conf[name] = value
        return self

    def send(self) -> None:
        """Send the message without waiting for the broker. Raises the same errors as `Context.publish`."""
        self._publish(self, None)

    def send_async(self, callback: Callable[[Any, Any], None]) -> None:
        """Send the message, and call ``callback(result, value)`` on a separate thread once the broker has replied."""
        self._publish(self, callback)
