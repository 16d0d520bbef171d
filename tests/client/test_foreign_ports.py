"""Addresses where something else than a broker answers: the client says at once what is there, and what to use."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest
from magnetar.client import AsyncClient, Client, ClientConfig
from magnetar.errors import ConnectionLost, ForeignProtocol, MagnetarError, TlsFailed

from tests.client.scripted import ScriptedBroker
from tests.support.certificates import Authority, server_context
from tests.support.loopback import LoopbackServer

LONG_S = 600.0
"""An operation timeout that a test does not live to see: an error that is not final would be repeated for so long."""


class Says(LoopbackServer):
    """Answers the first bytes of a client with its own."""

    def __init__(self, answer: bytes, tls: ssl.SSLContext | None = None) -> None:
        super().__init__()
        self.answer = answer
        self.tls = tls

    @property
    def where(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(self.answer)
        await writer.drain()
        if self.answer:
            await reader.read()


async def failure(url: str, timeout_s: float = LONG_S, **settings: Any) -> MagnetarError:
    """What creating a producer raises, which must not take as long as the operation timeout."""
    config = ClientConfig(operation_timeout_s=timeout_s, **settings)
    async with AsyncClient(url, config) as client, asyncio.timeout(60):
        with pytest.raises(MagnetarError) as raised:
            await client.create_producer("t")
    assert "\n" not in str(raised.value)
    return raised.value


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"<!DOCTYPE HTML>\n<html>"])
async def test_an_http_port_is_named_with_the_address_to_use(answer: bytes) -> None:
    async with Says(answer) as server:
        error = await failure(server.service_url)
        assert server.connections == 1
        where = server.where
    assert isinstance(error, ForeignProtocol)
    assert str(error) == f"{where} is an HTTP port: use the broker's service port, for example pulsar://127.0.0.1:6650"


async def test_an_https_port_is_named_with_the_address_to_use(tmp_path: Path) -> None:
    certificate = Authority(tmp_path).issue("server")
    async with Says(b"HTTP/1.1 400 Bad Request\r\n\r\n", server_context(certificate)) as server:
        error = await failure(server.service_url, tls_allow_insecure_connection=True)
    assert isinstance(error, ForeignProtocol)
    assert "is an HTTP port: use the broker's service port, for example pulsar+ssl://127.0.0.1:6651" in str(error)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.2p1\r\n",
        b"-ERR unknown command\r\n",
        b"\x00\x00\x00\x05junk",  # a size that would fit, and a command that does not fit into it
        b"\x00\x00\x00\x06\x00\x00\x00\x02\xff\xff",
    ],
)
async def test_what_does_not_speak_the_protocol_is_refused_at_once(answer: bytes) -> None:
    async with Says(answer) as server:
        error = await failure(server.service_url)
        where = server.where
    assert isinstance(error, ForeignProtocol)
    assert f"{where} does not speak Pulsar's binary protocol (it answered {answer[:16]!r})" in str(error)
    assert "use a broker address, for example pulsar://127.0.0.1:6650" in str(error)


async def test_a_port_with_tls_that_says_so_is_named() -> None:
    async with Says(b"\x15\x03\x03\x00\x02\x02\x46") as server:
        error = await failure(server.service_url)
        where = server.where
    assert str(error) == f"{where} is a TLS port: use pulsar+ssl://{where}, or the port without TLS"


async def test_a_port_with_tls_that_says_nothing_is_found_out(tmp_path: Path) -> None:
    certificate = Authority(tmp_path).issue("server")
    async with Says(b"", server_context(certificate)) as server:
        error = await failure(server.service_url.replace("pulsar+ssl", "pulsar"))
        where = server.where
    assert isinstance(error, ForeignProtocol)
    assert f"use pulsar+ssl://{where}" in str(error)


async def test_a_broker_without_tls_is_found_out() -> None:
    class Plain(ScriptedBroker):
        """Ends a connection at the first byte of TLS, as brokers do."""

        async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            first = await reader.read(1 << 16)
            if first.startswith(b"\x00"):
                rest = asyncio.StreamReader()
                rest.feed_data(first)
                rest.feed_eof()
                await super().handle(rest, writer)
                await reader.read()

    async with Plain() as broker:
        error = await failure(broker.service_url.replace("pulsar://", "pulsar+ssl://"))
        where = f"127.0.0.1:{broker.port}"
    assert isinstance(error, TlsFailed)
    assert str(error) == f"{where} does not speak TLS: use pulsar://{where}, or the TLS port"


async def test_a_connection_that_ends_without_a_word_is_tried_again() -> None:
    async with Says(b"") as server:
        error = await failure(server.service_url, timeout_s=0.5)
        assert server.connections > 3  # a broker that is starting may do so; one of these connections tried TLS
    assert isinstance(error, ConnectionLost)


async def test_connect_makes_one_attempt_unless_told_otherwise() -> None:
    async with Says(b"") as server:
        url = server.service_url
    async with AsyncClient(url) as client:
        with pytest.raises(ConnectionLost, match="cannot connect to"):
            await client.connect()
    async with ScriptedBroker() as broker, AsyncClient(broker.service_url) as client:
        await client.connect()
        assert broker.connections == 1


def test_the_blocking_client_says_the_same() -> None:
    async def ask() -> None:
        async with Says(b"HTTP/1.1 400 Bad Request\r\n\r\n") as server:
            with Client(server.service_url) as client, pytest.raises(ForeignProtocol, match="is an HTTP port"):
                await asyncio.to_thread(client.create_producer, "t")

    asyncio.run(ask())
