"""Options of `spark.readStream.format("magnetar").option(...)` in addition to those of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec

from ....errors import InvalidConfig
from ..option_names import STREAM_OPTIONS, known, number, seconds
from ..options import ReadOptions, common_options
from .admission import Limits

MAX_TRIGGER_DELAY_S = 15 * 60.0
"""Default maximum wait for ``minOffsetsPerTrigger``, as in Kafka's source."""
_WITH_READ_LIMITS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger")


@dataclass(frozen=True, kw_only=True)
class StreamOptions:
    """Options for reading topics as a stream.

    Attributes:
        read: options as for a batch.
        limits: limits of a batch; ignored by triggers that request all available data.
        subscription: name of a durable subscription that records the progress and retains unread messages, or empty.
    """

    read: ReadOptions
    limits: Limits
    subscription: str = ""


def stream_options(options: Mapping[str, str]) -> StreamOptions:
    """Parse the options of a stream.

    Raises:
        InvalidConfig: an option is unknown, missing, invalid or too new for this PySpark; the message names it.
    """
    given = known(options, STREAM_OPTIONS)
    for name in _WITH_READ_LIMITS:
        if name.lower() in given and not has_read_limits():
            found = version("pyspark") if find_spec("pyspark") else "none"
            raise InvalidConfig(f"{name} requires pyspark 4.2 or newer, but {found} is installed: omit it")
    least = number(given, "minOffsetsPerTrigger", 1)
    most = number(given, "maxOffsetsPerTrigger", 1)
    if least is not None and most is not None and least > most:
        raise InvalidConfig(f"minOffsetsPerTrigger={least} exceeds maxOffsetsPerTrigger={most}: swap them")
    if "maxtriggerdelay" in given and least is None:
        raise InvalidConfig("maxTriggerDelay requires minOffsetsPerTrigger: set both or neither")
    subscription = given.get("predefinedsubscription", "")
    if "predefinedsubscription" in given and not subscription:
        raise InvalidConfig("predefinedSubscription is empty: omit it to use no subscription")
    limits = Limits(
        max_rows=most,
        max_bytes=number(given, "maxBytesPerTrigger", 1),
        min_rows=least,
        max_delay_s=seconds(given, "maxTriggerDelay", MAX_TRIGGER_DELAY_S),
    )
    return StreamOptions(read=common_options(given, "latest"), limits=limits, subscription=subscription)


def has_read_limits() -> bool:
    """Return whether this PySpark has read limits and ``Trigger.AvailableNow`` for Python sources."""
    return find_spec("pyspark") is not None and find_spec("pyspark.sql.streaming.datasource") is not None
