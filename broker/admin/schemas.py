"""REST endpoints that read, upload, delete and test topic schemas, including those of topics that do not exist.

Source: Pulsar 4.0's SchemasResource. Requests that cause an internal error there are rejected with a reason.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from ...web.answers import Refused, as_json, nothing
from ...wire.topic_name import TopicName
from ..schemas import key_value
from ..schemas.compatibility import Incompatible, check_new, version_of
from ..schemas.model import InvalidDefinition, Schema, SchemaType, SchemaVersion
from ..schemas.records import NO_NAMES
from ..schemas.validity import check_definition
from .bodies import as_object, as_text_map
from .call import Call
from .routing import Routes

_TOPIC = "/admin/v2/schemas/{tenant}/{namespace}/{topic}"
_FORGOTTEN = -1
_UNKNOWN = -1
_NO_LEDGER = -1
"""Ledger id in responses: schemas are stored in the metadata store, not in ledgers."""


def _name(call: Call) -> TopicName:
    name = call.topic_of("persistent")
    for part in (name.tenant, name.namespace, name.base.local):
        if part in NO_NAMES:
            raise Refused(412, f"Topic name is not valid: {part} is not a valid name in the metadata store")
    return name


async def _latest(call: Call) -> Response:
    return _found((await call.broker.schemas.history(_name(call))).last)


async def _by_version(call: Call) -> Response:
    text = call.text("version")
    name = _name(call)
    if not text:
        return await _latest(call)
    try:
        number = int(text) if len(text) < 20 else None
    except ValueError:
        number = None
    if number is None:
        raise Refused(400, f"invalid schema version {text[:80]!a}: expected a whole number")
    return _found((await call.broker.schemas.history(name)).find(number))


def _found(version: SchemaVersion | None) -> Response:
    if version is None:
        raise Refused(404, "Schema not found")
    return as_json(_shown(version))


async def _all(call: Call) -> Response:
    history = await call.broker.schemas.history(_name(call))
    return as_json({"getSchemaResponses": [_shown(version) for version in history.versions]})


def _shown(version: SchemaVersion) -> dict[str, Any]:
    schema = version.schema
    is_pair = schema.type is SchemaType.KEY_VALUE
    return {
        "version": version.number,
        "type": schema.type.name,
        "timestamp": schema.timestamp_ms,
        "data": key_value.to_text(schema) if is_pair else schema.data.decode(errors="replace"),
        "properties": dict(schema.properties),
    }


async def _metadata(call: Call) -> Response:
    numbers = (await call.broker.schemas.history(_name(call))).numbers
    if not numbers:
        return nothing()
    index = [{"ledgerId": _NO_LEDGER, "entryId": 0, "version": number} for number in numbers]
    return as_json({"info": index[-1], "index": index})


async def _upload(call: Call) -> Response:
    name = _name(call)
    schema = await _read(call)
    _check_namespace(call, name)
    strategy = call.namespaces.schema_policy(name).strategy
    try:
        number = await call.broker.schemas.put(name, schema, strategy, may_write=lambda: _check_namespace(call, name))
    except InvalidDefinition as error:
        raise Refused(422, str(error)) from error
    except Incompatible as error:
        raise Refused(409, str(error)) from error
    return as_json({"version": {"version": number}})


async def _delete(call: Call) -> Response:
    name = _name(call)
    _check_namespace(call, name)
    if call.flag("force"):
        await call.broker.schemas.forget(name)
        return as_json({"version": _FORGOTTEN})
    now_ms = call.broker.now_ms()
    number = await call.broker.schemas.delete(name, now_ms, may_write=lambda: _check_namespace(call, name))
    return as_json({"version": number})


async def _compatibility(call: Call) -> Response:
    """Return whether a schema would be accepted and, unlike Pulsar, the reason if not."""
    name = _name(call)
    schema = await _read(call)
    strategy = call.namespaces.schema_policy(name).strategy
    answer: dict[str, Any] = {"schemaCompatibilityStrategy": strategy.value, "compatibility": True}
    try:
        versions = (await call.broker.schemas.history(name)).versions
        await call.broker.schemas.apart(name, schema, (), lambda: check_definition(schema))
        await call.broker.schemas.apart(name, schema, versions, lambda: check_new(schema, versions, strategy))
    except InvalidDefinition as error:
        raise Refused(422, str(error)) from error
    except Incompatible as error:
        answer |= {"compatibility": False, "reason": str(error)}
    return as_json(answer, 202)


async def _version(call: Call) -> Response:
    name = _name(call)
    schema = await _read(call)
    versions = (await call.broker.schemas.history(name)).versions
    number = await call.broker.schemas.apart(name, schema, versions, lambda: version_of(schema, versions))
    return as_json({"version": _UNKNOWN if number is None else number})


async def _read(call: Call) -> Schema:
    """Return the schema in a request body.

    Raises:
        Refused: 400 if the schema is missing, 422 if its type is unknown.
    """
    body = as_object(await call.json(), "a schema: type, schema, properties")
    if body is None:
        raise Refused(400, "empty request body: expected a schema with type, schema and properties")
    name, text = body.get("type"), body.get("schema")
    if not isinstance(name, str) or name not in SchemaType.__members__:
        raise Refused(422, f"invalid schema type {name!a:.80}: expected one of {', '.join(SchemaType.__members__)}")
    if not isinstance(text, str):
        raise Refused(400, "field schema of the request body is not a string: send an empty string for primitive types")
    properties = as_text_map(body.get("properties"), "properties") or {}
    try:
        data = key_value.from_text(text) if name == SchemaType.KEY_VALUE.name else text.encode()
    except InvalidDefinition as error:
        raise Refused(422, str(error)) from error
    return Schema(SchemaType[name], data, properties, call.broker.now_ms())


def _check_namespace(call: Call, name: TopicName) -> None:
    if not call.namespaces.has_namespace(name.namespace_name):
        raise Refused(404, "Namespace does not exist")


ROUTES: Routes = (
    ("GET", f"{_TOPIC}/schema", _latest),
    ("GET", f"{_TOPIC}/schema/{{version}}", _by_version),
    ("GET", f"{_TOPIC}/schema/", _latest),
    ("GET", f"{_TOPIC}/schemas", _all),
    ("GET", f"{_TOPIC}/metadata", _metadata),
    ("POST", f"{_TOPIC}/schema", _upload),
    ("DELETE", f"{_TOPIC}/schema", _delete),
    ("POST", f"{_TOPIC}/compatibility", _compatibility),
    ("POST", f"{_TOPIC}/version", _version),
)
