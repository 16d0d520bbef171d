"""The core of the pipeline: a function on a run of messages."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.api import IdentitySerDe, SerDe
from magnetar.instance.batch_call import BatchCall, Blame
from magnetar.instance.stopping import InstanceStopping

IDENTITY = IdentitySerDe()


class Picky(SerDe):
    """Refuses b"bad" on the way in and "bad" on the way out."""

    def serialize(self, input: Any) -> Any:  # noqa: A002
        if input == "bad":
            raise ValueError("bad out")
        return 7 if input == "no bytes" else input.encode()

    def deserialize(self, input_bytes: bytes) -> Any:
        if input_bytes == b"bad":
            raise ValueError("bad in")
        return input_bytes.decode()


def test_run_returns_an_output_per_message() -> None:
    results = BatchCall(lambda text: f"{text}!", None, IDENTITY).run([b"a", b"b"], IDENTITY)
    assert results.outputs == [b"a!", b"b!"]
    assert results.failures == []


def test_run_keeps_places_of_messages_without_output() -> None:
    results = BatchCall(lambda x: x if x > 1 else None, None, IDENTITY).run([b"1", b"2", b"1", b"3"], IDENTITY)
    assert results.outputs == [None, b"2", None, b"3"]


def test_run_of_nothing_returns_nothing() -> None:
    assert BatchCall(str, None, IDENTITY).run([], IDENTITY).outputs == []


def test_failure_carries_the_traceback_into_user_code() -> None:
    def explode(_: object) -> None:
        raise KeyError("no such thing")

    failure = BatchCall(explode, None, IDENTITY).run([b"x"], IDENTITY).failures[0]
    trace = failure.error.__traceback__
    assert trace is not None
    assert trace.tb_next is not None
    assert trace.tb_next.tb_frame.f_code.co_name == "explode"


def test_stop_iteration_fails_its_message_only() -> None:
    def stop(value: int) -> int:
        if value == 2:
            raise StopIteration
        return value

    results = BatchCall(stop, None, IDENTITY).run([b"1", b"2", b"3", b"2"], IDENTITY)
    assert results.outputs == [b"1", None, b"3", None]
    assert [failure.position for failure in results.failures] == [1, 3]
    assert "StopIteration" in str(results.failures[0].error)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError])
def test_exceptions_that_end_a_program_fail_their_message_only(kind: type[BaseException]) -> None:
    def leave(value: int) -> int:
        if value == 2:
            raise kind("so")
        return value

    results = BatchCall(leave, None, IDENTITY).run([b"1", b"2", b"3"], IDENTITY)
    assert results.outputs == [b"1", None, b"3"]
    assert [(failure.position, type(failure.error)) for failure in results.failures] == [(1, kind)]


def test_a_stopping_instance_is_not_a_failure_of_the_message() -> None:
    def leave(_: object) -> None:
        raise InstanceStopping

    with pytest.raises(InstanceStopping):
        BatchCall(leave, None, IDENTITY).run([b"x"], IDENTITY)


def test_output_serde_that_returns_no_bytes_fails_the_message() -> None:
    results = BatchCall(lambda x: x, None, Picky()).run([b"no bytes", b"fine"], Picky())
    assert results.outputs == [None, b"fine"]
    assert "returned int instead of bytes" in str(results.failures[0].error)


ACTIONS = st.lists(st.sampled_from(["ok", "none", "raise", "stop", "bad", "bad out"]), max_size=40)


@given(ACTIONS)
def test_run_equals_a_plain_loop(actions: list[str]) -> None:
    """Any mixture of results and failures, the context asking for its place each time."""
    seen: list[int] = []

    class Asking:
        """Stands for a context: knows the call, so that it can ask for the place."""

        call: BatchCall

    context = Asking()

    def function(action: str, asking: Asking) -> str | None:
        seen.append(asking.call.place.position)
        match action:
            case "none":
                return None
            case "raise":
                raise ValueError(action)
            case "stop":
                raise StopIteration
            case "bad out":
                return "bad"
        return f"{action} {asking.call.place.position}"

    context.call = BatchCall(function, context, Picky())  # type: ignore[arg-type]
    results = context.call.run([action.encode() for action in actions], Picky())
    assert seen == [position for position, action in enumerate(actions) if action != "bad"]
    assert results.outputs == [
        f"ok {position}".encode() if action == "ok" else None for position, action in enumerate(actions)
    ]
    expected = {
        position: Blame.SYSTEM if action == "bad" else Blame.USER
        for position, action in enumerate(actions)
        if action not in ("ok", "none")
    }
    assert {failure.position: failure.blame for failure in results.failures} == expected
    assert len(results.failures) == len(expected)
    assert context.call.place.position == -1
