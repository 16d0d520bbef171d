"""The sink ``http`` at a server that does not answer."""

from __future__ import annotations

import asyncio
import socket

import pytest
from magnetar.api.connector import Record, Retry
from magnetar.api.connector_config import read_config
from magnetar.connectors.http_sink import HttpSink

from tests.connectors.direct import DirectContext


def test_a_server_that_does_not_answer_is_named_with_the_time() -> None:
    async def write(url: str) -> None:
        sink = HttpSink()
        await sink.open(read_config(HttpSink.config, {"url": url, "timeout": 0.2}), DirectContext())
        try:
            await sink.write_batch([Record(b"1", topic="t", message_id="1:1:-1")])
        finally:
            await sink.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/in"
        with pytest.raises(Retry) as raised:
            asyncio.run(write(url))
    assert str(raised.value) == f"{url}: no response within 0.2 s (ReadTimeout)"
