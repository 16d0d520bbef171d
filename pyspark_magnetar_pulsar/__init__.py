"""Registers the data source under its second name, ``pulsar``; Spark accepts one source per package."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.spark.source.source import PulsarSource as DefaultSource
else:

    def __getattr__(name: str) -> object:
        if name != "DefaultSource":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from magnetar.spark.source.source import PulsarSource

        return PulsarSource


__all__ = ["DefaultSource"]
