"""A table service in this process, and a client of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from magnetar.state.client import Change, TableClient
from magnetar.state.server import TableServer

TABLE = "public/default/f"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[TableServer]:
    server = TableServer.start(tmp_path)
    yield server
    server.stop()


@pytest.fixture
def tables(service: TableServer) -> Iterator[TableClient]:
    client = TableClient(service.url)
    yield client
    client.close()


@pytest.fixture
def write(tables: TableClient) -> Callable[..., None]:
    """Apply changes to `TABLE`, as a writer that never repeats a call."""
    writer = os.urandom(16)
    sequence = iter(range(1, 1_000_000))

    def call(*changes: Change, table: str = TABLE) -> None:
        tables.apply(table, writer, next(sequence), changes)

    return call
