"""Separate topics for each test: the function sees the names from its config, the broker sees unique ones."""

from __future__ import annotations

from ..wire.topic_name import parse_topic_name

_PARTITION = "-partition-"


class OwnTopics:
    """The broker-side topic names of one test."""

    def __init__(self, ending: str) -> None:
        """Prepare.

        Args:
            ending: appended to the name of each topic.
        """
        self._ending = ending

    def name(self, topic: str) -> str:
        """Return the full name of a topic on the broker."""
        full, mark, partition = parse_topic_name(topic).text.partition(_PARTITION)
        return full + self._ending + mark + partition
