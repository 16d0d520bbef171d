"""Records as JSON objects, and per-record outcomes of batches that a target may accept in part."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ..api.connector import Record, RecordRefused, Retry

Outcome: TypeAlias = "str | Retry | None"
"""Outcome of one record: None if written, a reason if permanently rejected, or `Retry` if it must be retried."""


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


_decode = json.JSONDecoder(parse_constant=_no_constant).decode


def json_of(text: bytes | str) -> Any:
    """Parse JSON.

    Raises:
        ValueError: the input is not valid UTF-8 JSON, or contains a non-JSON number such as NaN.
        RecursionError: the input is nested too deeply.
    """
    return _decode(text if isinstance(text, str) else str(text, "utf-8"))


class Digits(str):
    """The JSON representation of a number with a decimal point or an exponent."""

    __slots__ = ()


_decode_digits = json.JSONDecoder(parse_constant=_no_constant, parse_float=Digits).decode


def digits_of(text: bytes | str) -> Any:
    """Parse JSON, using `Digits` for numbers that a float might round. Raises the same exceptions as `json_of`."""
    return _decode_digits(text if isinstance(text, str) else str(text, "utf-8"))


def digits_text(value: Any) -> str:
    """Return a value parsed by `digits_of` as JSON."""
    if isinstance(value, Digits):
        return value
    if isinstance(value, dict):
        return "{" + ", ".join(f"{digits_text(key)}: {digits_text(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(digits_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def document_of(record: Record, read: Callable[[bytes | str], Any] = json_of) -> dict[str, Any]:
    """Return a record's value as a JSON object.

    Args:
        record: a record passed to a sink.
        read: parser for string and bytes values: `json_of` or `digits_of`.

    Raises:
        RecordRefused: the value is not a JSON object. `refused_at` adds the record's index.
    """
    value = record.value
    if isinstance(value, bytes | str):
        try:
            value = read(value)
        except (ValueError, RecursionError) as error:
            raise RecordRefused(f"value is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise RecordRefused(f"value must be a JSON object, not {type(value).__name__}")
    return value


class Outcomes:
    """Writes batches to a system that reports an outcome for each record.

    When a record is rejected, the sink receives the batch again without it. This class remembers the outcomes of the
    other records, so that none is sent twice, even if some of them must be retried.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Record, str | None]] = {}  # by id(); keeping the record prevents reuse of its id

    def write(self, records: Sequence[Record], send: Callable[[Sequence[Record]], Sequence[Outcome]]) -> None:
        """Send the records without a known outcome, and return once all records are written.

        Args:
            records: the batch passed to `Sink.write_batch`.
            send: sends a subset of them and returns the outcome of each.

        Raises:
            RecordRefused: for the first rejected record.
            Retry: some records must be retried.
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
    """Send records together; if they are rejected, bisect, so that only the invalid records are rejected.

    Args:
        records: the records to send, in order.
        send: sends a subset of them and returns the common outcome.
        can_be_one: returns whether a single record can have caused a rejection.
    """
    outcome = send(records)
    if len(records) == 1 or not isinstance(outcome, str) or not can_be_one(outcome):
        return [outcome] * len(records)
    middle = len(records) // 2
    return halved(records[:middle], send, can_be_one) + halved(records[middle:], send, can_be_one)
