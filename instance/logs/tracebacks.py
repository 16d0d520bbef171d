"""Format tracebacks as strings, without Magnetar's own frames.

Design: a function that fails for many messages fails in few locations. The expensive part is the stack, whose source
lines are read and parsed for markers, at a hundred times the cost of raising, and with the same result each time. So
the stack is cached by the locations that the exception passed through, and only the exception's own lines are formatted
each time. Exceptions with a cause, a group or a deep stack are formatted as a whole.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from types import CodeType

_OWN_FILES = (os.path.dirname(os.path.dirname(__file__)) + os.sep, "<frozen importlib")
_EXPLAINED = (SyntaxError, NameError, AttributeError, ImportError)
KEPT_MAX = 256
"""Maximum number of cached stacks per process."""
KEPT_FRAMES_MAX = 64

_Places = tuple[tuple[int, int], ...]
_kept: dict[_Places, tuple[str, list[CodeType]]] = {}
"""Stacks by ids of code objects, which are retained: equal code objects may come from different files."""


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an exception; raises errors of the exception's formatting code."""
    codes: list[CodeType] = []
    places = _places_of(error, codes)
    if not places:
        return "".join(_summary(error).format()).rstrip()
    kept = _kept.get(places)
    if kept is None:
        stack = "".join(["Traceback (most recent call last):\n", *_summary(error).stack.format()])
        if len(_kept) >= KEPT_MAX:
            _kept.clear()
        kept = _kept[places] = (stack, codes)
    return f"{kept[0]}{_own_lines(error)}".rstrip()


def forget_stacks(is_gone: Callable[[str], bool]) -> None:
    """Drop cached stacks that pass through removed files, because their code objects keep modules alive."""
    for places, (_, codes) in list(_kept.items()):
        if any(is_gone(code.co_filename) for code in codes):
            _kept.pop(places, None)


def _own_lines(error: BaseException) -> str:
    """Return the lines of the exception itself, at a fifth of the cost of `traceback.format_exception_only`.

    That function is used for exceptions with notes, suggestions for names, or positions of syntax errors.
    """
    kind = type(error)
    is_usual = isinstance(kind.__module__, str) and not issubclass(kind, _EXPLAINED)
    if not is_usual or hasattr(error, "__notes__"):
        return "".join(traceback.format_exception_only(error))
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  an error in user code
        return "".join(traceback.format_exception_only(error))
    name = (
        kind.__qualname__ if kind.__module__ in ("__main__", "builtins") else f"{kind.__module__}.{kind.__qualname__}"
    )
    return f"{name}: {text}" if text else name


def _places_of(error: BaseException, codes: list[CodeType]) -> _Places:
    """Return the locations that an exception passed through, or () if they do not determine its traceback.

    Args:
        error: the exception.
        codes: list that the code objects are added to.
    """
    has_context = error.__context__ is not None and not error.__suppress_context__
    if has_context or error.__cause__ is not None or isinstance(error, BaseExceptionGroup):
        return ()
    places: list[tuple[int, int]] = []
    step = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        codes.append(code)
        places.append((id(code), step.tb_lasti))
        if len(places) > KEPT_FRAMES_MAX:
            return ()
        step = step.tb_next
    return tuple(places)


def _summary(error: BaseException) -> traceback.TracebackException:
    summary = traceback.TracebackException.from_exception(error)
    _drop_own_frames(summary)
    return summary


def _drop_own_frames(summary: traceback.TracebackException) -> None:
    """Remove Magnetar's own frames from an error and its causes."""
    foreign = [frame for frame in summary.stack if not frame.filename.startswith(_OWN_FILES)]
    if foreign:
        summary.stack = traceback.StackSummary.from_list(foreign)
    for earlier in (summary.__cause__, summary.__context__):
        if earlier is not None:
            _drop_own_frames(earlier)
