"""Call connectors directly, as an instance does, to test a single connector."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from magnetar.api.connector import Connector, Record, RecordRefused, Sink
from magnetar.api.connector_config import read_config

from tests.connectors.direct import DirectContext


class Opened:
    """Opens connectors, and closes them at the end."""

    def __init__(self) -> None:
        self._connectors: list[Connector] = []

    def __call__(self, connector: Any, configs: Mapping[str, Any], context: DirectContext | None = None) -> Any:
        config = read_config(connector.config, configs)
        connector.check(config)
        self._connectors.append(connector)
        connector.open(config, context or DirectContext())
        return connector

    def close(self) -> None:
        """Close all connectors in the order in which they were opened."""
        for connector in self._connectors:
            connector.close()


@pytest.fixture
def opened() -> Iterator[Opened]:
    it = Opened()
    yield it
    it.close()


def write_all(sink: Sink, records: list[Record]) -> list[tuple[Record, str]]:
    """Write records as an instance does, and return the rejected ones with the causes."""
    refused: list[tuple[Record, str]] = []
    while records:
        try:
            sink.write_batch(records)
        except RecordRefused as error:
            refused.append((records[error.index], str(error)))
            records = [*records[error.written : error.index], *records[error.index + 1 :]]
        else:
            return refused
    return refused
