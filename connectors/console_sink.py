"""The sink ``console``: shows records in the log of the instance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..api.connector import Record, Sink, SinkContext
from ..api.connector_config import option
from ..wire.printable import printable


@dataclass
class ConsoleSinkConfig:
    """What is shown of a record."""

    show_metadata: bool = option("Whether key, properties and message id are shown beside the value.", default=False)
    most_chars: int = option(
        "Characters of a value at most; what is longer ends in three dots.", default=1000, limits=(1, 1_000_000)
    )


class ConsoleSink(Sink):
    """Shows each record as a line of the instance's log; line breaks and the like in it as escapes."""

    config = ConsoleSinkConfig

    def not_effectively_once(self, config: ConsoleSinkConfig) -> str:
        """See `Connector.not_effectively_once`."""
        return "a record that comes again is a second line of the log"

    def open(self, config: ConsoleSinkConfig, context: SinkContext) -> None:
        """See `Connector.open`."""
        self._config = config
        self._log = context.logger

    def write_batch(self, records: Sequence[Record]) -> None:
        """See `Sink.write_batch`."""
        for record in records:
            value = record.value
            text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
            if len(text) > self._config.most_chars:
                text = text[: self._config.most_chars] + "..."
            if self._config.show_metadata:
                text = f"{record.message_id} key={record.key!r} properties={dict(record.properties)!r} {text}"
            self._log.info("%s", printable(text))
