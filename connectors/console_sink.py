"""The ``console`` sink writes records to the instance's log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..api.connector import Record, Sink, SinkContext
from ..api.connector_config import option
from ..wire.printable import printable


@dataclass
class ConsoleSinkConfig:
    """Settings of the ``console`` sink."""

    show_metadata: bool = option(
        "Whether to log the record key, properties and message ID along with the value.", default=False
    )
    most_chars: int = option(
        "Maximum characters per value; longer values are truncated and end in three dots.",
        default=1000,
        limits=(1, 1_000_000),
    )


class ConsoleSink(Sink):
    """Logs each record as one line on the instance, with line breaks and control characters escaped."""

    config = ConsoleSinkConfig

    def not_effectively_once(self, config: ConsoleSinkConfig) -> str:
        """Return why a configuration does not support EFFECTIVELY_ONCE, or an empty string."""
        return "a redelivered record is logged again"

    def open(self, config: ConsoleSinkConfig, context: SinkContext) -> None:
        """Open the connector."""
        self._config = config
        self._log = context.logger

    def write_batch(self, records: Sequence[Record]) -> None:
        """Write a batch of records durably."""
        for record in records:
            value = record.value
            text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
            if len(text) > self._config.most_chars:
                text = text[: self._config.most_chars] + "..."
            if self._config.show_metadata:
                text = f"{record.message_id} key={record.key!r} properties={dict(record.properties)!r} {text}"
            self._log.info("%s", printable(text))
