"""``magnetar schemas`` and the policies of schemas: what is asked, what is shown, what is made of Python classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from magnetar.broker.config import SCHEMA_STRATEGIES
from magnetar.broker.schemas import avro_rules
from magnetar.cli.topics.policies import STRATEGIES

from .conftest import FakeRest, Magnetar

PATH = "/admin/v2/schemas/public/default/t"
TOPIC = "/admin/v2/persistent/public/default/t"
NAMESPACE = "/admin/v2/namespaces/a/b"
HELD = {"version": 3, "type": "AVRO", "timestamp": 7, "data": '{"type":"int"}', "properties": {"k": "v"}}
SHOWN = {
    "version": 3,
    "schemaInfo": {"name": "t", "schema": {"type": "int"}, "type": "AVRO", "timestamp": 7, "properties": {"k": "v"}},
}
CLASSES = """
from __future__ import annotations
import enum
from dataclasses import dataclass

class Colour(enum.Enum):
    RED = 1
    BLUE = 2

@dataclass
class Part:
    size: float
    colour: Colour
    parts: list[Part]

@dataclass
class Order:
    number: int
    text: str = "none"
    first: Part | None = None
    names: dict[str, bytes] | None = None

@dataclass
class Wrong:
    anything: object

class Own:
    @classmethod
    def schema(cls):
        return {"type": "record", "name": "Own", "fields": []}

class Plain:
    pass
"""


def test_strategies_are_those_of_the_broker() -> None:
    assert set(STRATEGIES) == {"UNDEFINED", *SCHEMA_STRATEGIES}


@pytest.mark.parametrize(
    ("arguments", "method", "path", "body"),
    [
        (("schemas", "delete", "t"), "DELETE", f"{PATH}/schema", b""),
        (("schemas", "delete", "a/b/c", "-f"), "DELETE", "/admin/v2/schemas/a/b/c/schema", b""),
        (("schemas", "metadata", "t"), "GET", f"{PATH}/metadata", b""),
        (
            ("topics", "set-schema-compatibility-strategy", "t", "-s", "FORWARD"),
            "PUT",
            f"{TOPIC}/schemaCompatibilityStrategy",
            b'"FORWARD"',
        ),
        (
            ("topicPolicies", "remove-schema-compatibility-strategy", "t"),
            "DELETE",
            f"{TOPIC}/schemaCompatibilityStrategy",
            b"",
        ),
        (("topics", "set-schema-validation-enforce", "t", "-e"), "POST", f"{TOPIC}/schemaValidationEnforced", b"true"),
        (
            ("namespaces", "set-schema-compatibility-strategy", "a/b", "-c", "FULL"),
            "PUT",
            f"{NAMESPACE}/schemaCompatibilityStrategy",
            b'"FULL"',
        ),
        (
            ("namespaces", "set-schema-validation-enforce", "a/b", "-d"),
            "POST",
            f"{NAMESPACE}/schemaValidationEnforced",
            b"false",
        ),
        (
            ("namespaces", "set-is-allow-auto-update-schema", "a/b", "--disable"),
            "POST",
            f"{NAMESPACE}/isAllowAutoUpdateSchema",
            b"false",
        ),
        (("namespaces", "set-encryption-required", "a/b", "-e"), "POST", f"{NAMESPACE}/encryptionRequired", b"true"),
        (("namespaces", "get-encryption-required", "a/b"), "GET", f"{NAMESPACE}/encryptionRequired", b""),
        (("namespaces", "get-is-allow-auto-update-schema", "a/b"), "GET", f"{NAMESPACE}/isAllowAutoUpdateSchema", b""),
    ],
)
def test_command_asks_for_what_its_name_says(
    magnetar: Magnetar, rest: FakeRest, arguments: tuple[str, ...], method: str, path: str, body: bytes
) -> None:
    assert magnetar(*arguments).code == 0
    assert (rest.last.method, rest.last.path, rest.last.body) == (method, path, body)
    assert rest.last.query == ({"force": "true"} if "-f" in arguments else {})


def test_get_shows_definitions_as_json(magnetar: Magnetar, rest: FakeRest) -> None:
    rest.answer(f"GET {PATH}/schema", HELD)
    rest.answer(f"GET {PATH}/schema/3", HELD | {"type": "STRING", "data": ""})
    rest.answer(f"GET {PATH}/schemas", {"getSchemaResponses": [HELD, HELD]})

    assert json.loads(magnetar("schemas", "get", "t").out) == SHOWN
    assert json.loads(magnetar("schemas", "get", "t", "-v", "3").out)["schemaInfo"]["schema"] == ""
    assert json.loads(magnetar("schemas", "get", "t", "--all-version").out) == [SHOWN, SHOWN]
    assert magnetar("schemas", "get", "t", "-a", "-v", "1").code != 0


@pytest.mark.parametrize("schema", ['{"type":"int"}', {"type": "int"}])
def test_upload_sends_the_file(magnetar: Magnetar, rest: FakeRest, tmp_path: Path, schema: Any) -> None:
    file = tmp_path / "schema.json"
    file.write_text(json.dumps({"type": "AVRO", "schema": schema}))
    rest.answer(f"POST {PATH}/schema", {"version": {"version": 4}})
    rest.answer(f"POST {PATH}/compatibility", {"compatibility": False, "reason": "field c"}, 202)

    assert "version 4" in magnetar("schemas", "upload", "t", "-f", str(file)).out
    assert json.loads(rest.last.json["schema"]) == {"type": "int"}
    assert (rest.last.json["type"], rest.last.json["properties"]) == ("AVRO", {})
    answer = magnetar("-o", "json", "schemas", "compatibility", "t", "-f", str(file))
    assert json.loads(answer.out) == {"compatibility": False, "reason": "field c"}


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"type": 5}'])
def test_a_file_that_is_no_schema_is_named(magnetar: Magnetar, rest: FakeRest, tmp_path: Path, text: str) -> None:
    file = tmp_path / "schema.json"
    file.write_text(text)

    answer = magnetar("schemas", "upload", "t", "-f", str(file))

    assert (answer.code != 0, str(file) in answer.err, rest.requests) == (True, True, [])


def test_extract_makes_a_definition_of_a_dataclass(magnetar: Magnetar, rest: FakeRest, tmp_path: Path) -> None:
    file = tmp_path / "records.py"
    file.write_text(CLASSES)
    rest.answer(f"POST {PATH}/schema", {"version": {"version": 0}})
    arguments = ("schemas", "extract", "t", "--py", str(file), "-t", "avro")

    magnetar(*arguments, "-c", "records.Order")
    part = {"type": "record", "name": "Part", "fields": [
        {"name": "size", "type": ["null", "double"], "default": None},
        {"name": "colour", "default": None,
         "type": ["null", {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}]},
        {"name": "parts", "type": ["null", {"type": "array", "items": "Part"}], "default": None},
    ]}  # fmt: skip
    assert json.loads(rest.last.json["schema"]) == {"type": "record", "name": "Order", "fields": [
        {"name": "number", "type": ["null", "long"], "default": None},
        {"name": "text", "type": ["null", "string"], "default": None},
        {"name": "first", "type": ["null", part], "default": None},
        {"name": "names", "type": ["null", {"type": "map", "values": "bytes"}], "default": None},
    ]}  # fmt: skip
    assert (rest.last.json["type"], rest.last.json["properties"]["__alwaysAllowNull"]) == ("AVRO", "true")

    assert avro_rules.parse(rest.last.json["schema"].encode()).type == "record"

    magnetar(*arguments, "-c", "Order", "-a", "false")
    fields = json.loads(rest.last.json["schema"])["fields"]
    assert fields[:2] == [{"name": "number", "type": "long"}, {"name": "text", "type": "string", "default": "none"}]

    asked = len(rest.requests)
    shown = json.loads(magnetar(*arguments, "-c", "Own", "-n").out)
    assert shown["schema"] == {"type": "record", "name": "Own", "fields": []}
    assert len(rest.requests) == asked


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--jar", "x.jar", "-c", "A"), "use --py FILE instead of --jar"),
        (("--py", "{}", "-c", "Nope"), "does not define class Nope"),
        (("--py", "{}", "-c", "Plain"), "Plain is neither a dataclass"),
        (("--py", "{}", "-c", "Wrong"), "Wrong.anything has type object, which has no Avro equivalent"),
    ],
)
def test_extract_refuses_what_it_cannot_read(
    magnetar: Magnetar, rest: FakeRest, tmp_path: Path, arguments: tuple[str, ...], text: str
) -> None:
    file = tmp_path / "records.py"
    file.write_text(CLASSES)
    given = [str(file) if each == "{}" else each for each in arguments]

    answer = magnetar("schemas", "extract", "t", "-t", "json", *given)

    assert (answer.code != 0, text in answer.err, rest.requests) == (True, True, [])
