"""Records as JSON objects, and what became of each record of a batch that the other system took in part."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ..api.connector import Record, RecordRefused, Retry

Outcome: TypeAlias = "str | Retry | None"
"""Of one record: None if it is written, why it never will be, or why it is to be tried again."""


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


_decode = json.JSONDecoder(parse_constant=_no_constant).decode


def json_of(text: bytes | str) -> Any:
    """Return what a JSON text means.

    Raises:
        ValueError: it is none, is no UTF-8, or has a number that JSON has not, such as NaN.
        RecursionError: it is nested too deeply.
    """
    return _decode(text if isinstance(text, str) else str(text, "utf-8"))


class Digits(str):
    """A number with a point or an exponent, as it is written in JSON."""

    __slots__ = ()


_decode_digits = json.JSONDecoder(parse_constant=_no_constant, parse_float=Digits).decode


def digits_of(text: bytes | str) -> Any:
    """Return what a JSON text means, with `Digits` for numbers that a float might round; raises as `json_of`."""
    return _decode_digits(text if isinstance(text, str) else str(text, "utf-8"))


def digits_text(value: Any) -> str:
    """Return what `digits_of` has returned as JSON."""
    if isinstance(value, Digits):
        return value
    if isinstance(value, dict):
        return "{" + ", ".join(f"{digits_text(key)}: {digits_text(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(digits_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def document_of(record: Record, read: Callable[[bytes | str], Any] = json_of) -> dict[str, Any]:
    """Return the JSON object that the value of a record is.

    Args:
        record: of a sink.
        read: reads a value that is text: `json_of` or `digits_of`.

    Raises:
        RecordRefused: it is none; `refused_at` gives it the record's index.
    """
    value = record.value
    if isinstance(value, bytes | str):
        try:
            value = read(value)
        except (ValueError, RecursionError) as error:
            raise RecordRefused(f"the value is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise RecordRefused(f"the value must be a JSON object, and is {type(value).__name__}")
    return value


class Outcomes:
    """Writes batches to a system that answers for each record.

    A batch of which a record is refused is given again without that record. What is known of the others by then is
    kept here, so that none is sent twice, nor when some of them have to be tried again.
    """

    def __init__(self) -> None:
        self._known: dict[
            int, tuple[Record, str | None]
        ] = {}  # by id(); the record is kept so that the id stays its own

    def write(self, records: Sequence[Record], send: Callable[[Sequence[Record]], Sequence[Outcome]]) -> None:
        """Send the records whose outcome is not known, and return when all are written.

        Args:
            records: as `Sink.write_batch` was given them.
            send: sends some of them, and returns the outcome of each.

        Raises:
            RecordRefused: the first of those that are refused.
            Retry: some have to be tried again.
        """
        known = self._known
        left = [record for record in records if id(record) not in known]
        later: Retry | None = None
        if left:
            for record, outcome in zip(left, send(left), strict=True):
                if isinstance(outcome, Retry):
                    later = later or outcome
                else:
                    known[id(record)] = (record, outcome)
        if later is not None:
            raise later
        for index, record in enumerate(records):
            if (cause := known[id(record)][1]) is not None:
                raise RecordRefused(cause, index, written=index)
        known.clear()


def halved(
    records: Sequence[Any], send: Callable[[Sequence[Any]], Outcome], can_be_one: Callable[[str], bool]
) -> list[Outcome]:
    """Send records at once, and if they are refused, each half by itself: so the culprits alone are refused.

    Args:
        records: whatever is to be sent, in its order.
        send: sends some of them, and returns their common outcome.
        can_be_one: whether a refusal can be the fault of single records.
    """
    outcome = send(records)
    if len(records) == 1 or not isinstance(outcome, str) or not can_be_one(outcome):
        return [outcome] * len(records)
    middle = len(records) // 2
    return halved(records[:middle], send, can_be_one) + halved(records[middle:], send, can_be_one)
