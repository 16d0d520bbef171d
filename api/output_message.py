"""A message on its way out, put together step by step: what `Context.new_output_message` returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

Publish = Callable[["OutputMessage", Callable[[Any, Any], None] | None], None]
"""Sends a message; what became of it is told to a callback, if there is one."""


class OutputMessage:
    """A message that is not sent yet; each method but the last two returns it again.

    Values are checked when it is sent, as those of `Context.publish` are.

    Attributes:
        topic: where to.
        serde_class_name: of the SerDe that serialises the value.
        payload: the value; None for a message without one, which deletes its key where a topic is compacted.
        conf: what else it has, as ``message_conf`` of `Context.publish`.
        key_is_bytes: whether the key was given as bytes.
    """

    __slots__ = ("_publish", "conf", "key_is_bytes", "payload", "serde_class_name", "topic")

    def __init__(self, topic: str, serde_class_name: str, publish: Publish) -> None:
        """Begin a message without a value; ``publish`` sends it."""
        self.topic = topic
        self.serde_class_name = serde_class_name
        self.payload: Any = None
        self.conf: dict[str, Any] = {}
        self.key_is_bytes = False
        self._publish = publish

    def value(self, value: Any) -> OutputMessage:
        """Set the value, which the SerDe serialises; None for none."""
        self.payload = value
        return self

    def key(self, key: str) -> OutputMessage:
        """Set the key: it chooses the partition, and names what compaction keeps."""
        self.key_is_bytes = False
        return self._set("partition_key", key)

    def key_bytes(self, key: bytes) -> OutputMessage:
        """Set the key as bytes."""
        self.key_is_bytes = True
        return self._set("partition_key", key)

    def ordering_key(self, ordering_key: bytes) -> OutputMessage:
        """Set what Key_Shared subscriptions look at instead of the key."""
        return self._set("ordering_key", ordering_key)

    def property(self, name: str, value: str) -> OutputMessage:
        """Add a property."""
        return self.properties({name: value})

    def properties(self, properties: Mapping[str, str]) -> OutputMessage:
        """Add properties."""
        return self._set("properties", {**self.conf.get("properties", {}), **properties})

    def event_time(self, event_time_ms: int) -> OutputMessage:
        """Set the time of the event, in milliseconds since 1970."""
        return self._set("event_timestamp", event_time_ms)

    def sequence_id(self, sequence_id: int) -> OutputMessage:
        """Set the number under which the producer sends it; numbers must rise."""
        return self._set("sequence_id", sequence_id)

    def deliver_at(self, deliver_at_ms: int) -> OutputMessage:
        """Have Shared and Key_Shared subscriptions give it out at a time, in milliseconds since 1970."""
        return self._set("deliver_at", deliver_at_ms)

    def deliver_after(self, delay: timedelta) -> OutputMessage:
        """Have Shared and Key_Shared subscriptions give it out so long after it is sent."""
        return self._set("deliver_after", delay)

    def replication_clusters(self, clusters: list[str]) -> OutputMessage:
        """Refused when it is sent: nothing is replicated to other clusters."""
        return self._set("replication_clusters", clusters)

    def disable_replication(self) -> OutputMessage:
        """Refused when it is sent: nothing is replicated to other clusters."""
        return self._set("disable_replication", True)

    def load_conf(self, conf: Mapping[str, Any]) -> OutputMessage:
        """Set several of these by their names in ``message_conf`` of `Context.publish`."""
        self.conf.update(conf)
        return self

    def _set(self, name: str, value: Any) -> OutputMessage:
        self.conf[name] = value
        return self

    def send(self) -> None:
        """Send it, without waiting for the broker; as `Context.publish`, and raises as that."""
        self._publish(self, None)

    def send_async(self, callback: Callable[[Any, Any], None]) -> None:
        """Send it; ``callback(result, value)`` is called on a thread of its own once the broker has answered."""
        self._publish(self, callback)
