"""Resolve inputs that functions name by topic and partition number."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import InvalidConfig
from ..wire.topic_name import parse_topic_name


def find_partition(known: Callable[[str], bool], topic: object, partition: object, inputs: str) -> str:
    """Return the full name of an input that a function refers to.

    Args:
        known: returns whether a full name is an input or a partition of one.
        topic: topic name, with or without a partition.
        partition: partition number; 0 or -1 for a topic without partitions.
        inputs: list of the inputs for the error.

    Raises:
        InvalidConfig: topic is not a str, or partition is not a valid number.
        InvalidTopicName: the topic name is invalid.
        ValueError: the topic is not an input.
    """
    if not isinstance(topic, str):
        raise InvalidConfig(f"invalid topic of type {type(topic).__name__}: expected a str")
    if isinstance(partition, bool) or not isinstance(partition, int) or partition < -1:
        raise InvalidConfig(f"invalid partition {partition!a:.40}: expected a non-negative int")
    name, number = parse_topic_name(topic), partition
    if name.partition < 0 and known(in_parts := f"{name.text}-partition-{max(number, 0)}"):
        return in_parts
    if number in (-1, 0, name.partition) and known(name.text):
        return name.text
    what = f"{topic!a:.200}" if number <= 0 else f"partition {number} of {topic!a:.200}"
    raise ValueError(f"{what} is not an input of this function: expected one of {inputs}")
