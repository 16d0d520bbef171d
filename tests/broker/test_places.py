"""One client cannot take all connections of a broker, nor all files of its process."""

from __future__ import annotations

import logging
import resource
from pathlib import Path
from typing import Any, cast

import pytest
from magnetar.broker.session.places import ConnectionPlaces
from magnetar.security import open_files
from magnetar.security.roles import Roles
from magnetar.web.http_protocol import HttpLimits

from tests.support.tokens import token

from .raw import Raw
from .secured import secured, with_token

FILES = 128


@pytest.fixture
def few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have this process look as if it could open 128 files: 56 connections, 28 of one client, 16 without CONNECT."""
    monkeypatch.setattr("resource.getrlimit", lambda _: (FILES, FILES))


class Connection:
    """As much of a connection as counts here."""

    def __init__(self, address: str, role: str | None = None) -> None:
        self.address = f"/{address}:1234"
        self.roles = None if role is None else Roles(role)


def connection(address: str = "10.0.0.1", role: str | None = None) -> Any:
    return cast(Any, Connection(address, role))


def test_parts_leave_files_for_storage(few_files: None) -> None:
    places = ConnectionPlaces()
    given = places._known.size + places.max_unknown + HttpLimits().max_connections
    assert given <= FILES - FILES // 8


def test_a_limit_is_raised_to_what_the_system_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    set_to: list[tuple[int, int]] = []
    monkeypatch.setattr("resource.getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr("resource.setrlimit", lambda _, limits: set_to.append(limits))
    open_files.raise_limit()
    assert set_to == [(4096, 4096)]
    assert open_files.part(8, 10_000) == 512
    monkeypatch.setattr("resource.getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert open_files.part(8, 10_000) == 10_000


def test_the_address_with_most_unknown_connections_gives_way(few_files: None) -> None:
    places = ConnectionPlaces()
    quiet = [connection("10.0.0.2") for _ in range(3)]
    flood = [connection("10.0.0.1") for _ in range(places.max_unknown)]
    assert not any(places.arrived(one) for one in (*quiet, *flood[:-3]))
    assert places.arrived(flood[-3]) == flood[0]
    places.left(flood[0])
    assert places.arrived(flood[-2]) == flood[1]
    places.left(flood[1])
    assert places.arrived(connection("10.0.0.3")) is flood[2]


def test_one_role_leaves_connections_to_others(few_files: None, caplog: pytest.LogCaptureFixture) -> None:
    places = ConnectionPlaces()
    greedy = [connection(f"10.0.1.{number}", "greedy") for number in range(30)]
    refusals = [places.admit(one) for one in greedy]
    assert refusals[:28] == [""] * 28
    assert refusals[28] == (
        "role greedy has reached the limit of 28 connections per client: close some, or raise the broker's limit of"
        " open files (ulimit -n)"
    )
    assert places.admit(connection("10.0.1.1", "other")) == ""
    assert places.admit(connection("10.0.1.1")) == "", "of an address without a role"
    places.left(greedy[0])
    assert places.admit(connection("10.0.1.1", "greedy")) == ""
    others = [places.admit(connection(role=f"role {number}")) for number in range(27)]
    assert others[:26] == [""] * 26
    assert others[26].startswith("all 56 connections of this broker are in use: close some, or raise")
    assert [record.levelno for record in caplog.records] == [logging.WARNING], "one line a minute"


@pytest.mark.slow
async def test_connections_of_one_role_are_refused_while_another_works(few_files: None, tmp_path: Path) -> None:
    async with secured(tmp_path) as broker:
        held: list[Raw] = []
        try:
            for number in range(30):
                raw = await Raw.open(broker.port)
                held.append(raw)
                raw.send("CONNECT", client_version="raw", protocol_version=21, **with_token(token("consumer")))
                answer = (await raw.receive()).command
                assert answer.HasField("connected" if number < 28 else "error"), answer
            assert answer.error.message.startswith("role consumer has reached the limit of 28 connections per client")
            other = await Raw.open(broker.port)
            held.append(other)
            other.send("CONNECT", client_version="raw", protocol_version=21, **with_token(token("superuser")))
            assert (await other.receive()).command.HasField("connected")
        finally:
            for raw in held:
                await raw.close()
