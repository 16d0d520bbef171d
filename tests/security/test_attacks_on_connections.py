"""Attacks on connections: what one was let in for, played again on another, and lines of the log made by clients."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from magnetar.cli.servers.lifetime import LineFormatter

from ..broker.raw import Raw
from ..support.tokens import token
from .secured import Secured, make_golden_world, secured

TOPIC = "persistent://sec/ns/t"
ENDS_OF_LINES = ("\n", "\r", "\r\n", "\x0b", "\x0c", "\x1e", "\x85", "\u2028", "\u2029")
FORGED = '2026-11-26 00:00:00.000 INFO    magnetar.audit: role="superuser" outcome="200"'


def _response(role: str) -> dict[str, object]:
    return {"response": {"auth_method_name": "token", "auth_data": token(role).encode()}, "client_version": "raw"}


async def _producer(broker: Secured, role: str) -> Raw:
    raw = await broker.connect(role)
    answer = await raw.request("PRODUCER", topic=TOPIC, producer_id=7, request_id=1)
    assert answer.HasField("producer_success")
    return raw


async def test_an_answer_to_a_challenge_opens_no_other_connection(tmp_path: Path) -> None:
    async with secured(tmp_path) as broker:
        await make_golden_world(broker)
        first = await broker.connect("superuser")
        first.send("AUTH_RESPONSE", **_response("superuser"))
        assert not await first.barrier(), "the connection that it belongs to goes on"
        unknown = await Raw.open(broker.service.port)
        unknown.send("AUTH_RESPONSE", **_response("superuser"))
        unknown.send("PRODUCER", topic=TOPIC, producer_id=1, request_id=1)
        assert await unknown.is_closed()
        stranger = await broker.connect("stranger")
        stranger.send("AUTH_RESPONSE", **_response("superuser"))
        stranger.send("PRODUCER", topic=TOPIC, producer_id=1, request_id=1)
        assert await stranger.is_closed()
        for raw in (first, unknown, stranger):
            await raw.close()


async def test_a_second_connect_makes_nobody_of_a_connection_somebody_else(tmp_path: Path) -> None:
    async with secured(tmp_path) as broker:
        await make_golden_world(broker)
        raw = await broker.connect("stranger")
        raw.send(
            "CONNECT", client_version="raw", protocol_version=21, auth_method_name="token",
            auth_data=token("superuser").encode(),
        )  # fmt: skip
        raw.send("PRODUCER", topic=TOPIC, producer_id=1, request_id=1)
        while (frame := await raw.receive_or_end()) is not None:
            assert not frame.command.HasField("producer_success")
        await raw.close()


async def test_a_producer_of_one_connection_takes_nothing_from_another(tmp_path: Path) -> None:
    async with secured(tmp_path) as broker:
        await make_golden_world(broker)
        owner = await _producer(broker, "producer")
        thief = await broker.connect("stranger")
        thief.send_message(b"stolen", producer_id=7)
        thief.send("CLOSE_PRODUCER", producer_id=7, request_id=2)
        while (frame := await thief.receive_or_end()) is not None and not frame.command.HasField("success"):
            assert not frame.command.HasField("send_receipt")
        owner.send_message(b"mine", producer_id=7)
        receipt = (await owner.receive()).command
        assert receipt.HasField("send_receipt"), "the producer of the owner is closed"
        answer = await broker.call("superuser", "GET", "/admin/v2/persistent/sec/ns/t/stats")
        assert answer.json()["msgInCounter"] == 1
        await owner.close()
        await thief.close()


async def test_no_client_writes_lines_of_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    name = "".join(f"x{end}{FORGED}" for end in ENDS_OF_LINES)
    async with secured(tmp_path) as broker:
        await make_golden_world(broker)
        for shown in (token(name), token(name, key=b"x" * 32), name):
            raw = await Raw.open(broker.service.port)
            raw.send(
                "CONNECT", client_version=name, protocol_version=21, auth_method_name="token", auth_data=shown.encode(),
                original_principal=name,
            )  # fmt: skip
            raw.send("PRODUCER", topic=f"persistent://sec/ns/{name}", producer_id=1, request_id=1, producer_name=name)
            async with asyncio.timeout(30):
                while (frame := await raw.receive_or_end()) is not None and not frame.command.HasField("error"):
                    pass
            await raw.close()
        raw = await broker.connect("superuser")
        raw.send("PRODUCER", topic=TOPIC, producer_id=1, request_id=1, producer_name=name)
        raw.send(
            "SUBSCRIBE", topic=TOPIC, subscription=name, consumer_id=1, request_id=2, subType=0, consumer_name=name
        )
        raw.send("LOOKUP", topic=f"persistent://sec/ns/{name}", request_id=3)
        for _ in range(3):
            await raw.receive()
        await raw.close()
        await broker.call(name.encode("unicode_escape").decode(), "GET", "/admin/v2/persistent/sec/ns/t/stats")
    lines = [LineFormatter("broker").format(record) for record in caplog.records if record.exc_info is None]
    assert lines
    assert not [line for line in lines if len(line.splitlines()) != 1]
