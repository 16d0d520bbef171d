"""Registers the data source: Spark imports top-level packages whose names begin with ``pyspark_``.

So ``spark.read.format("magnetar")`` works wherever magnetar is installed, without registering anything.
"""

from magnetar.spark.source.source import MagnetarSource as DefaultSource

__all__ = ["DefaultSource"]
