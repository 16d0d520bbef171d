"""Tracebacks that are put together of what is known already say what Python's own say, but for our frames."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import pytest
from magnetar.api.serde import IdentitySerDe
from magnetar.errors import InvalidConfig
from magnetar.instance import stats
from magnetar.instance.batch_call import BatchCall
from magnetar.instance.logs import tracebacks
from magnetar.instance.logs.tracebacks import KEPT_FRAMES_MAX, KEPT_MAX, traceback_of


class Unshowable(ValueError):
    def __str__(self) -> str:
        raise KeyError("no")


def plain(number: int) -> None:
    raise ValueError(f"of {number}")


def in_a_call(number: int) -> None:
    list(map(plain, [number]))


def with_note(number: int) -> None:
    error = KeyError(number)
    error.add_note(f"note {number}")
    raise error


def with_cause(number: int) -> None:
    try:
        plain(number)
    except ValueError as error:
        raise RuntimeError("cannot go on") from error


def with_context(number: int) -> None:
    try:
        plain(number)
    finally:
        raise RuntimeError("cannot go on")


def without_context(number: int) -> None:
    try:
        plain(number)
    except ValueError:
        raise RuntimeError(f"cannot go on with {number}") from None


def deep(number: int, frames: int = KEPT_FRAMES_MAX + 5) -> None:
    if not frames:
        plain(number)
    deep(number, frames - 1)


def grouped(number: int) -> None:
    raise ExceptionGroup("several", [ValueError(number), KeyError(number)])


def misspelt(number: int) -> None:
    print(numbr)  # type: ignore[name-defined]  # noqa: F821


def no_python(number: int) -> None:
    compile(f"a b {number}", "given.py", "exec")


def unshowable(_number: int) -> None:
    raise Unshowable


class Unnoted(ValueError):
    def __getattr__(self, name: str) -> object:
        return [f"note by {name}"] if name == "__notes__" else super().__getattribute__(name)


def empty(_number: int) -> None:
    raise ValueError


def of_the_package(_number: int) -> None:
    raise InvalidConfig("a\nb\n")


def with_made_notes(number: int) -> None:
    raise Unnoted(number)


def unknown_attribute(number: int) -> None:
    number.rael  # type: ignore[attr-defined]  # noqa: B018


CASES = (
    plain, in_a_call, with_note, with_cause, with_context, without_context, deep, grouped, misspelt, no_python,
    unshowable, empty, of_the_package, with_made_notes, unknown_attribute,
)  # fmt: skip


def raised(function: Callable[[int], None], number: int) -> BaseException:
    try:
        function(number)
    except BaseException as error:  # noqa: BLE001  whatever it is
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize("function", CASES, ids=lambda function: function.__name__)
def test_traceback_is_pythons_own_the_first_time_and_later(function: Callable[[int], None]) -> None:
    for number in range(3):
        error = raised(function, number)
        expected = "".join(traceback.format_exception(error)).rstrip()
        assert traceback_of(error) == expected
        assert stats.format_error(error) == expected


def test_exception_without_a_stack_is_shown_alone() -> None:
    assert traceback_of(ValueError("x")) == "ValueError: x"


def test_frames_of_ours_are_left_out_each_time() -> None:
    call = BatchCall(lambda value: plain(int(value)), None, IdentitySerDe())
    for text in (b"1", b"2"):
        (failure,) = call.run([text], IdentitySerDe()).failures
        shown = traceback_of(failure.error)
        assert "batch_call.py" not in shown
        assert "in plain" in shown
        assert shown.endswith(f"ValueError: of {text.decode()}")


def test_places_that_differ_in_a_line_have_their_own_texts() -> None:
    def either(number: int) -> None:
        if number:
            raise ValueError("one")
        raise ValueError("none")

    texts = [traceback_of(raised(either, number)) for number in (0, 1, 0)]
    assert texts[0] == texts[2]
    assert 'raise ValueError("none")' in texts[0]
    assert 'raise ValueError("one")' in texts[1]


def test_number_of_kept_stacks_is_bounded() -> None:
    for number in range(KEPT_MAX + 10):
        spaces: dict[str, Callable[[int], None]] = {}
        exec(f"def f(_):\n    raise ValueError({number})", spaces)
        assert traceback_of(raised(spaces["f"], number)).endswith(f"ValueError: {number}")
    assert 0 < len(tracebacks._kept) <= KEPT_MAX


def test_equal_code_of_two_files_is_told_apart() -> None:
    source = "def f(_):\n    raise ValueError('x')"
    for name in ("first.py", "second.py"):
        spaces: dict[str, Callable[[int], None]] = {}
        exec(compile(source, name, "exec"), spaces)
        assert f'File "{name}", line 2, in f' in traceback_of(raised(spaces["f"], 0))
