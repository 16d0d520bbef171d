"""``magnetar functions querystate`` and ``putstate``: read and set keys of a function's state."""

from __future__ import annotations

import json
import time
from base64 import b64decode
from typing import Any

import click

from ..failure import Failure
from ..output import print_json
from ..rest import Admin, rest_command, segment
from .target import find_target, target_options

WATCH_EVERY_S = 1.0
NUMBER_BYTES = 8
_VALUES = ("stringValue", "byteValue", "numberValue")
_PUT_EXAMPLE = """magnetar functions putstate --name WordCount --state '{"key": "hello", "numberValue": 5}'"""
_NOT_FOUND = 404


@rest_command(None)
@target_options
@click.option("-k", "--key", required=True, help="Key to read.")
@click.option("-w", "--watch", is_flag=True, help="Repeat every second, even while the key does not exist.")
def querystate(rest: Admin, /, key: str, watch: bool, **target: str | None) -> None:
    """Show the value of a key in a function's state."""
    path = _path(key, target)
    while True:
        try:
            print_json(as_printed(rest.get(path)))
        except Failure as failure:
            if not watch or failure.status != _NOT_FOUND:
                raise
            click.echo(failure.format_message(), err=True)
        if not watch:
            return
        time.sleep(WATCH_EVERY_S)


@rest_command(None, epilog=f"\b\n{_PUT_EXAMPLE}")
@target_options
@click.option(
    "-s", "--state", required=True, metavar="JSON", help='Key and value, such as {"key": "k", "stringValue": "v"}.'
)
def putstate(rest: Admin, /, state: str, **target: str | None) -> str:
    """Set a key in a function's state.

    The value is a stringValue, a byteValue (base64) or a numberValue. The output of querystate is valid input.
    """
    record = _record(state)
    parts = {"state": (None, json.dumps(record), "application/json")}
    rest.send_parts("POST", _path(record["key"], target), parts)
    return f"Put state {record['key']} successfully"


def as_printed(state: dict[str, Any]) -> dict[str, Any]:
    """Format a FunctionState like Pulsar's tool: bytes as a list of signed numbers."""
    if "byteValue" not in state:
        return state
    return {**state, "byteValue": [byte - 256 if byte > 127 else byte for byte in b64decode(state["byteValue"])]}


def _record(text: str) -> dict[str, Any]:
    try:
        record = json.loads(text)
    except ValueError as error:
        raise Failure(f"--state is not valid JSON: {error}") from error
    if not isinstance(record, dict):
        raise Failure(f"--state must be a JSON object, not {type(record).__name__}")
    if not isinstance(record.get("key"), str) or not record["key"]:
        raise Failure('--state has no key: expected, for example, {"key": "k", "stringValue": "v"}')
    unknown = sorted(set(record) - {"key", *_VALUES, "version"})
    if unknown:
        raise Failure(f"--state has an unknown field {unknown[0]}: expected key, {', '.join(_VALUES)}")
    if all(record.get(name) is None for name in _VALUES):
        raise Failure(f"--state has no value for key {record['key']!r}: add one of {', '.join(_VALUES)}")
    _check_agreement(record)
    return record


def _check_agreement(record: dict[str, Any]) -> None:
    """Reject several different values; equal ones are allowed, as querystate also shows any eight bytes as a number."""
    given = [name for name in _VALUES if record.get(name) is not None]
    if len(given) > 1 and not (given[1:] == ["numberValue"] and _shown_number(record) == record["numberValue"]):
        raise Failure(f"--state has several values for key {record['key']!r}: use only one of {' and '.join(given)}")


def _shown_number(record: dict[str, Any]) -> int | None:
    """Return the number that querystate shows for a string or a printed list of bytes, or None."""
    text, data = record.get("stringValue"), record.get("byteValue")
    if isinstance(data, list) and all(isinstance(byte, int) for byte in data):
        found = bytes(byte & 0xFF for byte in data)
    elif isinstance(text, str):
        found = text.encode()
    else:
        return None
    return int.from_bytes(found, "big", signed=True) if len(found) == NUMBER_BYTES else None


def _path(key: str, target: dict[str, str | None]) -> str:
    return f"{find_target(**target).path}/state/{segment(key)}"
