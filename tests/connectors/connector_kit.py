"""Connectors called directly, as an instance calls them, for tests of what one connector does."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from magnetar.api.connector import Connector, Position, Record, RecordRefused, Sink, SinkContext, SourceContext
from magnetar.api.connector_config import read_config


class KitContext(SourceContext, SinkContext):
    """Of an instance that is the only one."""

    def __init__(self, *, is_exact: bool = False, position: Position = None) -> None:
        self.position = position
        self.name = "public/default/kit"
        self.incarnation = "public/default/kit@1"
        self.is_exact = is_exact
        self.instance_id = 0
        self.parallelism = 1
        self.logger = logging.getLogger("kit")
        self.state: dict[str, bytes] = {}

    def record_metric(self, name: str, value: float) -> None:
        pass

    def secret(self, name: str) -> str | None:
        return None

    def get_state(self, key: str) -> bytes | None:
        return self.state.get(key)

    def put_state(self, key: str, value: str | bytes) -> None:
        self.state[key] = value.encode() if isinstance(value, str) else value

    def is_stopping(self) -> bool:
        return False

    def pause(self, topic: str) -> None:
        raise NotImplementedError

    def resume(self, topic: str) -> None:
        raise NotImplementedError


class Opened:
    """Opens connectors, and closes them at the end."""

    def __init__(self) -> None:
        self._connectors: list[Connector] = []

    def __call__(self, connector: Any, configs: Mapping[str, Any], context: KitContext | None = None) -> Any:
        config = read_config(connector.config, configs)
        connector.check(config)
        self._connectors.append(connector)
        connector.open(config, context or KitContext())
        return connector

    def close(self) -> None:
        """Close those that were opened, in the order in which they were."""
        for connector in self._connectors:
            connector.close()


@pytest.fixture
def opened() -> Iterator[Opened]:
    it = Opened()
    yield it
    it.close()


def write_all(sink: Sink, records: list[Record]) -> list[tuple[Record, str]]:
    """Write records as an instance does, and return those that were refused, with the causes."""
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
