"""``magnetar schemas``: inspect and change topic schemas, like ``pulsar-admin schemas``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ...wire.topic_name import parse_topic_name
from ..failure import Failure, Group
from ..rest import Admin, Call, Line, Record, Subject, rest_command, segment
from .record_schema import definition_of, load_class
from .subscriptions import topic_argument

_TYPES = ("json", "avro")


@click.group(cls=Group)
def schemas() -> None:
    """Show, upload and delete topic schemas."""


def _path(topic: str) -> str:
    name = parse_topic_name(topic)
    return f"/admin/v2/schemas/{name.tenant}/{name.namespace}/{segment(name.local)}"


@rest_command(schemas)
@topic_argument
@click.option("-v", "--version", type=int, metavar="NUMBER", help="Version to show (default: the latest).")
@click.option("-a", "--all-version", is_flag=True, help="Show all versions.")
def get(rest: Admin, topic: str, version: int | None, all_version: bool) -> Record:
    """Show the schema of a topic."""
    if all_version:
        if version is not None:
            raise Failure("--version and --all-version cannot be combined")
        return Record([_shown(topic, each) for each in rest.get(f"{_path(topic)}/schemas")["getSchemaResponses"]])
    answer = rest.get(f"{_path(topic)}/schema" + ("" if version is None else f"/{version}"))
    return Record(_shown(topic, answer))


def _shown(topic: str, answer: dict[str, Any]) -> dict[str, Any]:
    """Return a REST response like pulsar-admin: JSON definitions are shown as JSON."""
    try:
        schema = json.loads(answer["data"])
    except ValueError:
        schema = answer["data"]
    info = {
        "name": parse_topic_name(topic).base.local,
        "schema": schema,
        "type": answer["type"],
        "timestamp": answer["timestamp"],
        "properties": answer["properties"],
    }
    return {"version": answer["version"], "schemaInfo": info}


_file_option = click.option(
    "-f",
    "--filename",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help='JSON file with "type", "schema" (a string) and "properties".',
)


@rest_command(schemas)
@topic_argument
@_file_option
def upload(rest: Admin, topic: str, filename: Path) -> Line:
    """Add a schema version from a file, unless the topic already has that schema."""
    return _post(rest, topic, _read(filename))


@rest_command(schemas)
@topic_argument
@_file_option
def compatibility(rest: Admin, topic: str, filename: Path) -> Record:
    """Show whether a schema in a file is compatible with a topic."""
    return Record(rest.post(f"{_path(topic)}/compatibility", _read(filename)))


@rest_command(schemas)
@topic_argument
@click.option("--py", "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Python file.")
@click.option("-j", "--jar", help="Not supported: use --py with a Python file.")
@click.option("-c", "--classname", required=True, help="A dataclass in the file, or a class with a method schema().")
@click.option("-t", "--type", "type_", required=True, type=click.Choice(_TYPES, case_sensitive=False))
@click.option("-a", "--always-allow-null", type=bool, default=True, help="Whether fields may be null (default: true).")
@click.option("-n", "--dry-run", is_flag=True, help="Show the schema without uploading it.")
def extract(
    rest: Admin, topic: str, file: Path | None, jar: str | None, classname: str, type_: str, **how: bool
) -> Record | Line:
    """Add a schema version generated from a Python class; this runs the file."""
    if jar is not None or file is None:
        raise Failure("extract requires a Python class: use --py FILE instead of --jar")
    definition = definition_of(load_class(file, classname), always_allow_null=how["always_allow_null"])
    properties = {
        "__alwaysAllowNull": "true" if how["always_allow_null"] else "false",
        "__jsr310ConversionEnabled": "false",
    }
    body = {"type": type_.upper(), "schema": json.dumps(definition), "properties": properties}
    if how["dry_run"]:
        return Record({"topic": str(parse_topic_name(topic)), **body, "schema": definition})
    return _post(rest, topic, body)


def _read(file: Path) -> dict[str, Any]:
    try:
        body = json.loads(file.read_bytes())
    except ValueError as error:
        raise Failure(f"{file} is not valid JSON: {error}") from error
    if not isinstance(body, dict) or not isinstance(body.get("type"), str):
        raise Failure(f'{file} is not a schema: expected {{"type": "AVRO", "schema": "…", "properties": {{}}}}')
    if not isinstance(body.get("schema", ""), str):  # Pulsar accepts only text; an object is unambiguous
        body["schema"] = json.dumps(body["schema"])
    return {"schema": "", "properties": {}} | body


def _post(rest: Admin, topic: str, body: dict[str, Any]) -> Line:
    version = rest.post(f"{_path(topic)}/schema", body)["version"]["version"]
    return Line(f"The schema is version {version} of {parse_topic_name(topic).base}", {"version": version})


Subject(_path, [topic_argument]).commands(
    schemas,
    Call(
        "delete", "DELETE", "/schema", "Delete all versions of a topic's schema.", "Deleted the schemas of {topic}",
        flags=[click.Option(["-f", "--force"], is_flag=True, help="Also delete the history; versions restart at 0.")],
    ),
    Call("metadata", "GET", "/metadata", "Show the recorded versions and deletions."),
)  # fmt: skip
