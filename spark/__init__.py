"""Spark support: the data source ``magnetar`` for topics, and Spark sessions.

Names are imported lazily. The planning and reading modules (`source.options`, `source.ranges`, `source.topic_metadata`,
`source.range_reader`) require neither pyspark nor pyarrow. `MagnetarSource` requires both; `open_session` requires
pyspark and Java.
"""

from typing import TYPE_CHECKING

from .. import lazy_names

if TYPE_CHECKING:
    from ..errors import DataLoss, InvalidConfig, SparkFailed
    from .ending import end_of
    from .interpreter import enable
    from .java import Java, find_java, standalone_environment
    from .session import Session, SessionConfig, open_session
    from .source.source import MagnetarSource
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "..errors": ["DataLoss", "InvalidConfig", "SparkFailed"],
            ".ending": ["end_of"],
            ".interpreter": ["enable"],
            ".java": ["Java", "find_java", "standalone_environment"],
            ".session": ["Session", "SessionConfig", "open_session"],
            ".source.source": ["MagnetarSource"],
        },
    )

__all__ = [
    "DataLoss",
    "InvalidConfig",
    "Java",
    "MagnetarSource",
    "Session",
    "SessionConfig",
    "SparkFailed",
    "enable",
    "end_of",
    "find_java",
    "open_session",
    "standalone_environment",
]
