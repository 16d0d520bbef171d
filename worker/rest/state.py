"""`/admin/v3/functions/{tenant}/{namespace}/{name}/state/{key}`: a key of a function's state, as in Pulsar."""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from ...errors import RequestRefused
from ...instance.identity import table_of
from ...web.answers import as_json
from ...wire.functions_pb2 import FunctionMetaData
from ..functions.service import Functions
from ..functions.state_tables import StateTables
from .app import ONE_FUNCTION, WorkerCall, WorkerRoutes
from .multipart import MAX_PART_BYTES, json_part

if TYPE_CHECKING:
    from ...state.values import Value

NUMBER_BYTES = 8
_INT64 = range(-(2**63), 2**63)


def shown(key: str, value: Value) -> dict[str, Any]:
    """Return a key as Pulsar's FunctionState; no side effects.

    Values of eight bytes are also shown as a number, because Pulsar does not store the type.
    """
    state: dict[str, Any] = {"key": key}
    if value.number is None:
        try:
            state["stringValue"] = value.data.decode()
        except UnicodeDecodeError:
            state["byteValue"] = b64encode(value.data).decode()
    if len(value.data) == NUMBER_BYTES:
        state["numberValue"] = int.from_bytes(value.data, "big", signed=True)
    return {**state, "version": value.version}


def sent(state: Mapping[str, Any], key: str) -> bytes:
    """Return the bytes of a FunctionState to store; no side effects.

    Raises:
        RequestRefused: the value is missing or invalid, or the key differs from the path.
    """
    if state.get("key") != key:
        raise RequestRefused(400, "Path key doesn't match key in json")
    data, text, number = state.get("byteValue"), state.get("stringValue"), state.get("numberValue")
    if data:
        return _from_base64(data)
    if text is not None:
        if not isinstance(text, str):
            raise RequestRefused(400, f"stringValue must be a string, got {type(text).__name__}")
        return text.encode()
    if number is not None:
        if type(number) is not int or number not in _INT64:
            raise RequestRefused(400, f"numberValue {number!r} must be a 64-bit integer")
        return number.to_bytes(NUMBER_BYTES, "big", signed=True)
    raise RequestRefused(500, "Invalid state value")


def _from_base64(data: object) -> bytes:
    try:
        if isinstance(data, str):
            return b64decode(data, validate=True)
        if isinstance(data, list):  # the format in which Pulsar's command line prints bytes
            return bytes(item & 0xFF for item in data)
    except (binascii.Error, TypeError, ValueError):
        pass
    raise RequestRefused(400, "byteValue must be base64, or a list of bytes")


@dataclass(frozen=True, slots=True)
class StateRoutes:
    """Handlers of one worker."""

    functions: Functions
    tables: StateTables

    def routes(self) -> WorkerRoutes:
        """Return the routes."""
        path = f"{ONE_FUNCTION}/state/{{key:path}}"
        return (("GET", path, self.get), ("POST", path, self.put))

    async def get(self, call: WorkerCall) -> Response:
        """Return the value of a key of the function's state."""
        key = call.text("key")
        self.tables.check_configured()
        table = table_of(self._find(call))
        value = await self.tables.get(table, key.encode())
        if value is None:
            raise RequestRefused(404, f"key '{key}' doesn't exist.")
        return as_json(shown(key, value))

    async def put(self, call: WorkerCall) -> None:
        """Set a key of the function's state from the form part `state`, a FunctionState in JSON."""
        key = call.text("key")
        self.tables.check_configured()
        table = table_of(self._find(call))
        state = json_part(await call.form(), "state", max_bytes=MAX_PART_BYTES)
        if state is None:
            raise RequestRefused(400, "the part state is missing: send a FunctionState as JSON")
        data = sent(state, key)
        await self.tables.put(table, key.encode(), data)

    def _find(self, call: WorkerCall) -> FunctionMetaData:
        function = call.function
        try:
            return self.functions.find(function)
        except RequestRefused as error:
            raise RequestRefused(404, f"'{function.name}' is not found") from error
