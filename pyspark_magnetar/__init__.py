"""Registers the data source: Spark imports all top-level packages whose names begin with ``pyspark_``.

``spark.read.format("magnetar")`` therefore works wherever magnetar is installed, without explicit registration. The
source is imported lazily, because Python workers that never use it also import this package.
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
