"""What messages are to a function, without a broker: annotations, SerDes, and what contradicts what."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from magnetar.api import IdentitySerDe, JsonSerDe, PickleSerDe, SerDe
from magnetar.client import AutoConsumeSchema, SchemaInfo
from magnetar.client.consumers.received import ReceivedEntry
from magnetar.client.producers.outgoing import encode_entry, seal_entry
from magnetar.client.schemas.schema import Schema
from magnetar.client.typed.writers import WriterSchemas
from magnetar.errors import FunctionLoadError
from magnetar.instance.batch_call import BatchCall
from magnetar.instance.loading.loader import Loading
from magnetar.instance.stopping import InstanceStopping
from magnetar.instance.unit import Unit
from magnetar.instance.values.annotations import NOTHING, annotations_of
from magnetar.instance.values.endpoints import SchemaEndpoints
from magnetar.instance.values.loading import Values, load_values
from magnetar.instance.values.wanted import Wanted
from magnetar.instance.values.writers import WriterSerDe, decoder_of
from magnetar.wire.functions_pb2 import FunctionDetails
from magnetar.wire.message_id import MessageId
from magnetar.wire.payload import open_payload
from magnetar.wire.topic_name import TopicName

HEAD = """
from __future__ import annotations
import typing
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, NewType, Optional, TypedDict
import msgspec
import pydantic
from pulsar.schema import Integer, Record, String
from google.protobuf.timestamp_pb2 import Timestamp

@dataclass
class Line:
    item: str
    count: int = 1

@dataclass
class Order:
    id: int
    lines: list[Line]
    note: str | None = None

@dataclass
class Reading:
    value: float

class Fields(msgspec.Struct):
    id: int
    tags: list[str] = []


class Model(pydantic.BaseModel):
    id: int
    tags: list[str] = []

class Old(Record):
    number = Integer()
    text = String()

class Shape(TypedDict):
    a: int

Cents = NewType("Cents", int)
"""


class CodeHome:
    """A package of one module, whose name is the test's own."""

    def __init__(self, path: Path, code: str) -> None:
        self.loading = Loading()
        name = f"values_of_{path.name.replace('-', '_')}"
        (path / f"{name}.py").write_text(HEAD + code)
        spec = importlib.util.spec_from_file_location(name, path / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        self.module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)

    def enter_thread(self) -> None: ...

    def leave_thread(self) -> None: ...

    def import_module(self, name: str) -> ModuleType:
        return self.module

    def pickle_serde(self) -> SerDe:
        return PickleSerDe()


class Coded:
    """Loads functions of code, and calls them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.home: CodeHome

    def load(self, code: str, **settings: Any) -> Values:
        self.home = CodeHome(self._path, code)
        details = FunctionDetails(className="m.f")
        details.source.inputSpecs["in"].schemaType = settings.pop("schema", "")
        details.source.inputSpecs["in"].serdeClassName = settings.pop("serde", "")
        details.source.typeClassName = settings.pop("in_class", "")
        details.sink.typeClassName = settings.pop("out_class", "")
        details.sink.schemaType = settings.pop("out_schema", "")
        details.sink.serDeClassName = settings.pop("out_serde", "")
        assert not settings
        return load_values(details, self.home, self.home.module.f)

    def call(self, code: str, *messages: bytes, **settings: Any) -> tuple[list[bytes | None], list[str]]:
        values = self.load(code, **settings)
        results = BatchCall(self.home.module.f, None, values.output).run(list(messages), values.inputs["in"])
        return results.outputs, [f"{type(one.error).__name__}: {one.error}" for one in results.failures]


@pytest.fixture
def coded(tmp_path: Path) -> Iterator[Coded]:
    yield Coded(tmp_path)
    for name in [name for name in sys.modules if name.startswith("values_of_")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("signature", "message", "shown"),
    [
        ("x: str", b"42", "'42'"),
        ("x: bytes", b"text", "b'text'"),
        ("x: int", b" 42", "42"),
        ("x: float", b"42", "42.0"),
        ("x: bool", b"true", "True"),
        ("x: dict", b'{"a": [1]}', "{'a': [1]}"),
        ("x: dict[str, list[int]]", b'{"a": [1]}', "{'a': [1]}"),
        ("x: list", b"[1, null]", "[1, None]"),
        ("x: dict | None", b"null", "None"),
        ("x: dict | list", b"[1]", "[1]"),
        ("x: Shape", b'{"a": 1}', "{'a': 1}"),
        ("x: Cents", b"7", "7"),
        ("x: Optional[int]", b"7", "7"),
        ("x: typing.Annotated[str, 'doc']", b"7", "'7'"),
        ("x: Order", b'{"id": 1, "lines": [{"item": "a"}]}', "Order(id=1, lines=[Line(item='a', count=1)], note=None)"),
        ("x: Model", b'{"id": "1"}', "Model(id=1, tags=[])"),
        ("x: Fields", b'{"id": 1}', "Fields(id=1, tags=[])"),
        ("x: Old", b'{"number": 1, "text": "t"}', "Old(1, 't')"),
        ("x: Timestamp", b"\x08\x07", "seconds: 7"),
        # what is as it is without annotations
        ("x", b"42", "42"),
        ("x: Any", b"4.5", "4.5"),
        ("x: object", b"4.5", "4.5"),
        ("x: str | int", b"42", "42"),
        ("x: Sequence[str]", b"42", "42"),
        ("x: typing.Hashable", b"42", "42"),
        ("x: Literal['a', 'b']", b"a", "'a'"),
        ("x: NotThere", b"42", "42"),
    ],
)
def test_function_is_given_what_its_parameter_says(coded: Coded, signature: str, message: bytes, shown: str) -> None:
    show = "(f'Old({x.number}, {x.text!r})' if isinstance(x, Old) else repr(x)).strip()"
    outputs, failures = coded.call(f"def f({signature}): return {show}", message, message)
    assert failures == []
    assert outputs == [shown.encode()] * 2


@pytest.mark.parametrize(
    ("signature", "message", "expected"),
    [
        ("x: str", b"\xff", "ValueError: message of 1 bytes is not text: invalid UTF-8 at byte 0: annotate the"),
        ("x: int", b"4.5", "ValueError: message '4.5' is not a valid int, as required by the parameter's annotation"),
        ("x: int", b"9" * 5000, "ValueError: Exceeds the limit (4300 digits)"),
        ("x: float", b"\xff", "ValueError: message '\\xff' is not a valid float, as"),
        ("x: bool", b"1", "ValueError: message '1' is neither true nor false, but the parameter is bool"),
        ("x: dict", b"[1]", "ValueError: parameter x of m.f is dict, but the message is a JSON list"),
        ("x: dict", b"null", "ValueError: parameter x of m.f is dict, but the message is a JSON NoneType"),
        ("x: list", b"{", "ValueError: message of 1 bytes is not valid JSON: Expecting property name"),
        ("x: dict", b'{"a":' * 100_000, "ValueError: message of 500000 bytes is not valid JSON: nested too deeply"),
        ("x: Order", b'{"id": "1", "lines": []}', "SchemaSerializationError: schema JSON of Order, field id: expected"),
        ("x: Order", b'{"id": 1}', "SchemaSerializationError: schema JSON of Order: missing field lines"),
        ("x: Order", b'{"id": 99999999999999999999, "lines": []}', "SchemaSerializationError: schema JSON of Order, f"),
        (
            "x: Reading",
            b'{"value": NaN}',
            "SchemaSerializationError: schema JSON of Reading: 14 bytes are not valid JSON: Na",
        ),
        ("x: Reading", b'{"value": 1e400}', "SchemaSerializationError: schema JSON of Reading, field value: expected"),
        (
            "x: Order",
            b"[" * 100_000,
            "SchemaSerializationError: schema JSON of Order: 100000 bytes are not valid JSON: max",
        ),
        (
            "x: Model",
            b'{"id": "x"}',
            "ValueError: message of 11 bytes is not a valid Model: 1 validation error for Model id",
        ),
        (
            "x: Fields",
            b'{"id": "x"}',
            "ValueError: message of 11 bytes is not a valid Fields: Expected `int`, got `str`",
        ),
        ("x: Old", b'{"number": "x"}', "SchemaSerializationError: schema JsonSchema cannot decode 15 bytes: Invalid"),
        (
            "x: Timestamp",
            b"\xff",
            "SchemaSerializationError: schema PROTOBUF_NATIVE of google.protobuf.Timestamp: cann",
        ),
    ],
)
def test_message_that_is_something_else_fails_alone_in_one_line(
    coded: Coded, signature: str, message: bytes, expected: str
) -> None:
    outputs, failures = coded.call(f"def f({signature}): return 'fine'", message)
    assert outputs == [None]
    assert failures[0].startswith(expected)
    assert "\n" not in failures[0]


def test_messages_around_one_that_fails_are_processed(coded: Coded) -> None:
    outputs, failures = coded.call("def f(x: dict) -> dict: return {'n': x['n']}", b'{"n":1}', b"no", b'{"n":3}')
    assert outputs == [b'{"n":1}', None, b'{"n":3}']
    assert len(failures) == 1


@pytest.mark.parametrize(
    ("returned", "value", "data"),
    [
        ("str", "'a'", b"a"),
        ("str", "b'a'", b"a"),  # as without annotations
        ("int", "7", b"7"),
        ("bytes", "b'\\xff'", b"\xff"),
        ("bool", "False", b"false"),
        ("dict", "{'a': 1}", b'{"a":1}'),
        ("list", "(1, 2)", b"[1,2]"),
        ("dict | None", "None", None),
        ("dict | list", "[1]", b"[1]"),
        ("Line", "Line('a')", b'{"item":"a","count":1}'),
        ("Line | None", "None", None),
        ("Model", "Model(id=1)", b'{"id":1,"tags":[]}'),
        ("Fields", "Fields(id=1)", b'{"id":1,"tags":[]}'),
        ("Timestamp", "Timestamp(seconds=7)", b"\x08\x07"),
        ("None", "'a'", b"a"),
        ("Any", "1.5", b"1.5"),
    ],
)
def test_function_returns_what_its_annotation_says(coded: Coded, returned: str, value: str, data: bytes | None) -> None:
    assert coded.call(f"def f(x) -> {returned}: return {value}", b"x", b"x") == ([data, data], [])


@pytest.mark.parametrize(
    ("returned", "value", "expected"),
    [
        (
            "dict",
            "[1]",
            "TypeError: the return type of m.f is dict, but the function returned list: change one of them",
        ),
        ("Line", "{}", "TypeError: the return type of m.f is Line, but the function returned dict: change one"),
        (
            "Line",
            "Line(5)",
            "SchemaSerializationError: schema JSON of Line, field item: expected a str that UTF-8 can encode, got 5",
        ),
        ("bool", "1", "TypeError: the function returned int, but its return annotation is bool: change one of them"),
        (
            "str",
            "{}",
            "TypeError: IdentitySerDe cannot serialize dict: set outputSerdeClassName to JsonSerDe, or annot",
        ),
        ("dict", "{'a': float('nan')}", "ValueError: JsonSerDe cannot serialize dict: Out of range float values"),
        ("Model", "Line('a')", "TypeError: the return type of m.f is Model, but the function returned Line"),
        ("Fields", "Line('a')", "TypeError: the return type of m.f is Fields, but the function returned Line"),
        ("Timestamp", "Model(id=1)", "TypeError: the return type of m.f is Timestamp, but the function returned Model"),
    ],
)
def test_function_that_returns_something_else_fails_that_message(
    coded: Coded, returned: str, value: str, expected: str
) -> None:
    outputs, failures = coded.call(f"def f(x) -> {returned}: return {value}", b"x")
    assert outputs == [None]
    assert failures[0].startswith(expected)


@pytest.mark.parametrize(
    ("code", "settings", "expected"),
    [
        (
            "def f(x: Decimal): ...",
            {},
            "parameter x of m.f is Decimal, which is not a message type: expected str, bytes",
        ),
        ("def f(x: list[Line]): ...", {}, "parameter x of m.f is list"),
        ("def f(x) -> set: ...", {}, "the return type of m.f is set, which is not a message type"),
        (
            "def f(x: dict): ...",
            {"serde": "IdentitySerDe"},
            "IdentitySerDe supports bytes, float, int, str, but parameter",
        ),
        (
            "def f(x) -> Order: ...",
            {"out_serde": "JsonSerDe"},
            "outputSerdeClassName JsonSerDe supports bool, dict, float",
        ),
        (
            "def f(x: int): ...",
            {"schema": "STRING"},
            "schemaType STRING is str in Python, but parameter x of m.f is int",
        ),
        ("def f(x: str): ...", {"schema": "json"}, "schemaType json requires a dict, a dataclass"),
        (
            "def f(x): ...",
            {"schema": "PROTOBUF"},
            "PROTOBUF requires a message class that protoc generated: annotate the par",
        ),
        (
            "def f(x) -> Model: ...",
            {"out_schema": "AVRO"},
            "outputSchemaType AVRO requires a dict, a dataclass or a Record",
        ),
        ("def f(x): ...", {"schema": "KEY_VALUE"}, "KEY_VALUE is not supported: use a SerDe"),
        ("def f(x): ...", {"schema": "m.Nope"}, "has no 'Nope'"),
        ("def f(x): ...", {"schema": "m.Line"}, "neither a schema of magnetar.client nor one of pulsar.schema"),
        (
            "def f(x: Line): ...",
            {"in_class": "m.Order"},
            "inputTypeClassName m.Order is Order, but parameter x of m.f is",
        ),
        (
            "def f(x): ...",
            {"in_class": "Order"},
            "inputTypeClassName 'Order' is not a class: expected module",
        ),
    ],
)
def test_contradictions_keep_a_function_from_starting(
    coded: Coded, code: str, settings: dict[str, str], expected: str
) -> None:
    with pytest.raises(FunctionLoadError) as refused:
        coded.load(code, **settings)
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


def test_config_wins_over_annotations(coded: Coded) -> None:
    code = "def f(x: str) -> str: return x"
    assert type(coded.load(code, serde="JsonSerDe").inputs["in"]) is JsonSerDe
    assert coded.call(code, b'"a"', serde="JsonSerDe", out_serde="JsonSerDe") == ([b'"a"'], [])
    assert type(coded.load(code, serde="IdentitySerDe").inputs["in"]) is IdentitySerDe


def test_classes_of_the_config_do_what_annotations_do(coded: Coded) -> None:
    code = "def f(x): return Line(x.item, 2)"
    outputs = coded.call(code, b'{"item": "a"}', in_class="m.Line", out_class="m.Line")
    assert outputs == ([b'{"item":"a","count":2}'], [])
    assert coded.call("def f(x): return repr(x)", b"5", in_class="java.lang.String") == ([b"'5'"], [])


@pytest.mark.parametrize(
    ("schema", "annotation", "message", "value"),
    [
        ("STRING", "", b"42", "'42'"),
        ("string", "str", b"42", "'42'"),
        ("BYTES", "", b"42", "b'42'"),
        ("INT32", "int", b"\0\0\0\x07", "7"),
        ("DOUBLE", "", b"\x40\x45\0\0\0\0\0\0", "42.0"),
        ("BOOLEAN", "bool", b"\x01", "True"),
        ("JSON", "", b'{"a":1}', "{'a': 1}"),
        ("JSON", "Line", b'{"item":"a"}', "Line(item='a', count=1)"),
        ("JSON", "Model", b'{"id":1}', "Model(id=1, tags=[])"),
        ("JSON", "Fields", b'{"id":1}', "Fields(id=1, tags=[])"),
        ("PROTOBUF", "Timestamp", b"\x08\x07", "seconds: 7"),
    ],
)
def test_schemas_read_values(coded: Coded, schema: str, annotation: str, message: bytes, value: str) -> None:
    parameter = f"x: {annotation}" if annotation else "x"
    outputs, failures = coded.call(f"def f({parameter}): return repr(x).strip()", message, message, schema=schema)
    assert (outputs, failures) == ([value.encode()] * 2, [])


CUSTOM = """
import _pulsar
import pulsar.schema
from magnetar.client import Schema, SchemaInfo
class Theirs(pulsar.schema.Schema):
    def __init__(self, kind, properties):
        super().__init__(kind, _pulsar.SchemaType.STRING, None, f"{kind.__name__} {properties}")
    def encode(self, obj): return obj.item.encode()
    def decode(self, data): return Line(data.decode())
class Ours(Schema):
    def __init__(self): self.info = SchemaInfo(1, name="OURS")
    def encode(self, value): return value.item.encode()
    def decode(self, data, writer=None): return Line(data.decode())
def f(line: Line) -> Line: return Line(line.item.upper())
"""


@pytest.mark.parametrize(("name", "shown"), [("Theirs", "Line {}"), ("Ours", "OURS")])
def test_schema_classes_of_the_package_convert(coded: Coded, name: str, shown: str) -> None:
    outputs, failures = coded.call(CUSTOM, b"tea", b"\xff", schema=f"m.{name}", out_schema=f"m.{name}")
    assert outputs == [b"TEA", None]
    assert "can't decode byte 0xff" in failures[0]
    schema = coded.load(CUSTOM, schema=f"m.{name}").input_schemas["in"].schema
    assert (schema.info.kind, schema.info.name) == (1, shown)


class Silent:
    """A client whose broker does not answer."""

    def __init__(self) -> None:
        self.writer_schemas = WriterSchemas(self._fetch)

    async def _fetch(self, topic: TopicName, version: bytes | None) -> SchemaInfo:
        await asyncio.Event().wait()
        raise AssertionError


class Versions(Schema[str]):
    """Values that say by which version of the schema they were read."""

    def encode(self, value: str) -> bytes:
        return value.encode()

    def decode(self, data: bytes, writer: SchemaInfo | None = None) -> str:
        return f"{data.decode()} by {None if writer is None else writer.name}"


def test_value_of_a_record_is_read_by_its_own_writer_and_takes_nothing_from_others() -> None:
    unit = Unit()
    for number in range(3):
        payload = seal_entry(encode_entry([b"m%d" % number]), "p", number, 1, b"v%d" % number)
        metadata, offset = open_payload(payload)
        unit.add(ReceivedEntry(MessageId(1, number), "t", metadata, 0, 1, (payload, offset, 1000)))
    serde = WriterSerDe(Versions(), Wanted(), lambda _, version: SchemaInfo(1, name=version.decode()))
    serde.follow(unit, 0)
    assert serde.deserialize(b"m0") == "m0 by v0"
    read = decoder_of(serde, unit.entries[0])
    assert [read(b"m0"), read(b"m0")] == ["m0 by v0"] * 2
    assert serde.deserialize(b"m1") == "m1 by v1"
    assert read(b"m0") == "m0 by v0"
    assert serde.deserialize(b"m2") == "m2 by v2"


async def test_stop_does_not_wait_for_the_schema_of_a_writer() -> None:
    endpoints = SchemaEndpoints(Silent())  # type: ignore[arg-type]  # what is asked of it
    schema = AutoConsumeSchema()
    asked = asyncio.create_task(asyncio.to_thread(endpoints.writer, schema, "persistent://a/b/c", b"1"))
    await asyncio.sleep(0)
    endpoints.stop()
    with pytest.raises(InstanceStopping):
        await asked


def test_generators_batches_and_decorators_are_looked_through(coded: Coded) -> None:
    coded.load(
        "import functools\n"
        "def f(x): ...\n"
        "def many(x: dict) -> Iterator[Line]: yield Line('a')\n"
        "async def later(x: int) -> AsyncIterator[str]: yield 'a'\n"
        "def batch(x: list[Order]) -> list[Line | Exception | None]: ...\n"
        "batch.__magnetar_batch__ = 10\n"
        "@functools.wraps(many)\n"
        "def wrapped(*a): return many(*a)\n"
        "class Callable:\n"
        "    def __call__(self, x: bytes) -> str: ...\n"
        "    def process(self, x: bytes, context: NotThere) -> str: ...\n"
    )
    module = coded.home.module
    line = module.Line
    assert annotations_of(module.many)[:2] == (dict, line)
    assert annotations_of(module.wrapped)[:2] == (dict, line)
    assert annotations_of(module.later)[:2] == (int, str)
    assert annotations_of(module.batch)[:2] == (module.Order, line | Exception | None)
    assert annotations_of(module.Callable())[:2] == (bytes, str)
    assert annotations_of(module.Callable().process)[:2] == (bytes, str)
    assert annotations_of(len)[:2] == (NOTHING, NOTHING)


def test_function_of_the_documentation(coded: Coded) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "schemas.md").read_text()
    block = page.split("## Annotate the function\n")[1].split("```python\n")[1].split("```")[0]
    outputs = coded.call(f"{block}\nf = summary\n", b'{"id": 1, "items": ["a", "b"]}', b"[]")
    assert outputs[0] == [b'{"id":1,"count":2}', None]
