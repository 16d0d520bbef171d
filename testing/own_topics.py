"""Separate topics for each test: the function uses the names in its config, the broker uses unique names."""

from __future__ import annotations

from ..wire.topic_name import parse_topic_name

_PARTITION = "-partition-"


class OwnTopics:
    """The broker-side topic names of one test."""

    def __init__(self, ending: str) -> None:
        """Create the topic names of a test.

        Args:
            ending: suffix of each topic name.
        """
        self._ending = ending

    def name(self, topic: str) -> str:
        """Return the full name of a topic on the broker."""
        full, mark, partition = parse_topic_name(topic).text.partition(_PARTITION)
        return full + self._ending + mark + partition
