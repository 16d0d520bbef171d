"""Inputs as functions name them: by topic and number of a partition."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import InvalidConfig
from ..wire.topic_name import parse_topic_name


def find_partition(known: Callable[[str], bool], topic: object, partition: object, inputs: str) -> str:
    """Return the full name of what a function names, among those that are known.

    Args:
        known: tells full names of inputs and of their partitions.
        topic: its name, with or without a partition.
        partition: its number; 0 or -1 where the topic has none.
        inputs: those that there are, for the error.

    Raises:
        InvalidConfig: topic and partition are no text and no number.
        InvalidTopicName: the text is no topic's name.
        ValueError: it is not among them.
    """
    if not isinstance(topic, str):
        raise InvalidConfig(f"the topic is {type(topic).__name__}; give a str")
    if isinstance(partition, bool) or not isinstance(partition, int) or partition < -1:
        raise InvalidConfig(f"partition {partition!a:.40} is none; give an int from 0 on")
    name, number = parse_topic_name(topic), partition
    if name.partition < 0 and known(in_parts := f"{name.text}-partition-{max(number, 0)}"):
        return in_parts
    if number in (-1, 0, name.partition) and known(name.text):
        return name.text
    what = f"{topic!a:.200}" if number <= 0 else f"partition {number} of {topic!a:.200}"
    raise ValueError(f"{what} is not an input of this function; it reads {inputs}")
