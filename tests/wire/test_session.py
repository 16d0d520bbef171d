"""What is legal when: every pair of the table on a broker's connection, and what the table itself promises."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from magnetar.broker.session.commands import HANDLERS
from magnetar.broker.session.connection import Connection
from magnetar.errors import ProtocolError
from magnetar.wire.pulsar_api_pb2 import BaseCommand
from magnetar.wire.session import LEGAL, Role, State, commands_of, violation

from tests.broker.brokers import running_broker

KINDS = sorted(BaseCommand.Type.values())


def command_of(kind: int) -> BaseCommand:
    command = BaseCommand(type=kind)  # type: ignore[arg-type]
    if kind in HANDLERS:
        getattr(command, HANDLERS[kind].field).SetInParent()
    return command


def test_the_broker_handles_every_command_of_a_client() -> None:
    assert HANDLERS.keys() | {BaseCommand.SEND} == commands_of(Role.CLIENT)


@pytest.mark.parametrize("role", Role)
def test_a_handshake_is_one_command_and_leads_on(role: Role) -> None:
    begin = {kind for kind, state in LEGAL[role][State.CONNECTING].items() if state is State.CONNECTED}
    assert begin == {BaseCommand.CONNECT if role is Role.CLIENT else BaseCommand.CONNECTED}
    assert set(LEGAL[role][State.CONNECTED].values()) == {State.CONNECTED}


def test_only_what_both_may_say_is_legal_for_both() -> None:
    both = commands_of(Role.CLIENT) & commands_of(Role.BROKER)
    assert both == {BaseCommand.PING, BaseCommand.PONG, BaseCommand.CLOSE_PRODUCER, BaseCommand.CLOSE_CONSUMER}


async def test_a_connection_refuses_what_the_table_does_not_have(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        for state in State:
            for kind in KINDS:
                if kind == BaseCommand.SEND or kind in LEGAL[Role.CLIENT][state]:
                    continue
                connection = Connection(broker)
                connection.enter(state)
                with pytest.raises(ProtocolError) as caught:
                    connection._handle(kind, command_of(kind))
                assert str(caught.value) == violation(Role.CLIENT, state, kind)


async def test_a_connection_takes_what_the_table_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def recording(kind: int) -> Callable[[Connection, object], None]:
        return lambda _, __: taken.append(kind)

    for kind, handler in HANDLERS.items():
        monkeypatch.setitem(HANDLERS, kind, handler._replace(run=recording(kind), has_strings=False))
    async with running_broker(tmp_path) as broker:
        for state in State:
            expected = [kind for kind in LEGAL[Role.CLIENT][state] if kind != BaseCommand.SEND]
            taken.clear()
            connection = Connection(broker)
            connection.enter(state)
            for kind in expected:
                connection._handle(kind, command_of(kind))
            assert taken == expected


@pytest.mark.parametrize(
    ("state", "kind", "text"),
    [
        (State.CONNECTING, BaseCommand.LOOKUP, "command type 23 before CONNECT"),
        (State.CONNECTED, BaseCommand.CONNECT, "duplicate CONNECT on one connection"),
        (State.CONNECTED, BaseCommand.SUCCESS, "command type 13 must not be sent by a client"),
    ],
)
def test_a_violation_says_what_is_wrong(state: State, kind: int, text: str) -> None:
    assert violation(Role.CLIENT, state, kind) == text
