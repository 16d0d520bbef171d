"""Registers the data source: Spark imports top-level packages whose names begin with ``pyspark_``.

So ``spark.read.format("magnetar")`` works wherever magnetar is installed, without registration. The source is imported
on first use, because Python workers that never use it import this package too.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.spark.source.source import MagnetarSource as DefaultSource
else:

    def __getattr__(name: str) -> object:
        if name != "DefaultSource":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from magnetar.spark.source.source import MagnetarSource

        return MagnetarSource


__all__ = ["DefaultSource"]
