"""A cursor reset while somebody changes the function: no cursor moves under a running instance, and none stays down."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from magnetar.errors import RequestRefused
from magnetar.wire.functions_pb2 import RUNNING, STOPPED, FunctionDetails, FunctionMetaData, FunctionState
from magnetar.worker.functions import cursor_reset
from magnetar.worker.functions.cursor_reset import CursorReset, Target
from magnetar.worker.functions.service import FunctionName, states_of

NAME = FunctionName("t", "n", "f")
START = Target(position=(-1, -1))


def created(uuid: str = "u") -> FunctionMetaData:
    details = FunctionDetails(tenant="t", namespace="n", name="f", parallelism=1)
    details.source.inputSpecs["persistent://t/n/in"].schemaType = ""
    return FunctionMetaData(functionDetails=details, functionUuid=uuid)


class World:
    """Functions, instances and broker, as a reset knows them; ``meanwhile`` happens when the instances have ended."""

    def __init__(self, meanwhile: Callable[[World], Awaitable[None]]) -> None:
        self.record: FunctionMetaData | None = created()
        self.meanwhile = meanwhile
        self.refusals = 0
        self.moved: list[str] = []
        parts: Any = self
        self.reset = CursorReset(parts, parts, parts)

    def get(self, _: FunctionName) -> FunctionMetaData | None:
        return self.record

    def find(self, name: FunctionName) -> FunctionMetaData:
        if (found := self.get(name)) is None:
            raise RequestRefused(404, "Function f doesn't exist")
        return found

    async def replace_states(
        self, name: FunctionName, states: Mapping[int, FunctionState], *, raises_incarnation: bool = False
    ) -> None:
        changed = FunctionMetaData()
        changed.CopyFrom(self.find(name))
        if self.refusals and all(state == RUNNING for state in states.values()):
            self.refusals -= 1
            raise RequestRefused(400, "Update request ignored because it is out of date. Please try again.")
        changed.version += 1
        changed.cursorIncarnation += raises_incarnation
        for index, state in states.items():
            changed.instanceStates[index] = state
        self.record = changed

    async def settle(self, *_: object) -> bool:
        return True

    async def not_ended(self, _: FunctionName) -> set[str]:
        assert set(states_of(self.find(NAME)).values()) == {STOPPED}
        await self.meanwhile(self)
        return set()

    async def parts(self, topic: str) -> list[str]:
        return [topic]

    async def consumers(self, *_: str) -> list[str]:
        return []

    async def reset_to_position(self, topic: str, *_: object) -> None:
        self.moved.append(topic)

    def states(self) -> set[FunctionState]:
        return set(states_of(self.find(NAME)).values())


async def nothing(_: World) -> None:
    pass


async def start(world: World) -> None:
    await world.replace_states(NAME, {0: RUNNING})


async def scale(world: World) -> None:
    changed = FunctionMetaData()
    changed.CopyFrom(world.find(NAME))
    changed.version += 1
    changed.functionDetails.parallelism = 2
    world.record = changed


async def delete(world: World) -> None:
    world.record = None


async def delete_and_create(world: World) -> None:
    world.record = created("another")


async def test_a_reset_moves_the_cursor_and_starts_a_new_incarnation() -> None:
    world = World(nothing)
    await world.reset.run(NAME, START)
    assert (world.moved, world.states(), world.find(NAME).cursorIncarnation) == (["persistent://t/n/in"], {RUNNING}, 1)


@pytest.mark.parametrize("meanwhile", [start, scale], ids=["started", "scaled"])
async def test_no_cursor_moves_when_somebody_has_changed_the_function_meanwhile(
    meanwhile: Callable[[World], Awaitable[None]],
) -> None:
    world = World(meanwhile)
    with pytest.raises(RequestRefused, match="was changed during the reset, so its cursors were not moved") as refused:
        await world.reset.run(NAME, START)
    assert (refused.value.status, world.moved, world.states()) == (409, [], {RUNNING})


@pytest.mark.parametrize("meanwhile", [delete, delete_and_create], ids=["deleted", "created-anew"])
async def test_the_next_function_of_that_name_keeps_its_cursors(
    meanwhile: Callable[[World], Awaitable[None]],
) -> None:
    world = World(meanwhile)
    with pytest.raises(RequestRefused, match="was changed during the reset"):
        await world.reset.run(NAME, START)
    assert world.moved == []
    assert world.record is None or world.record == created("another")


async def test_a_change_at_the_same_moment_leaves_no_function_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursor_reset, "_POLL_S", 0.0)
    world = World(nothing)
    world.refusals = 1
    await world.reset.run(NAME, START)
    assert (world.states(), world.find(NAME).cursorIncarnation) == ({RUNNING}, 1)


async def test_a_function_that_stays_stopped_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursor_reset, "_POLL_S", 0.0)
    world = World(nothing)
    world.refusals = 100
    with pytest.raises(RequestRefused, match=r"t/n/f remains stopped: .*out of date.*; start it"):
        await world.reset.run(NAME, START)


async def test_a_function_that_was_stopped_stays_so() -> None:
    world = World(nothing)
    await world.replace_states(NAME, {0: STOPPED})
    await world.reset.run(NAME, START)
    assert (world.states(), world.find(NAME).cursorIncarnation) == ({STOPPED}, 1)
