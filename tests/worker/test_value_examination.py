"""What contradicts itself in a function's annotations and config is refused at create, in the words of an instance."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest
from magnetar.config.conversion import read_function_config
from magnetar.config.rules import with_defaults
from magnetar.errors import PackageError
from magnetar.instance.examination.package import Question
from magnetar.runtime.process.runtime import ProcessRuntime
from magnetar.worker.functions.code_check import CodeCheck
from magnetar.worker.functions.package_intake import PackageIntake, question_of

pytestmark = pytest.mark.slow

SERDES = """
from collections import Counter
from pulsar import SerDe

class Own(SerDe):
    def serialize(self, value): return value
    def deserialize(self, data): return data

class Half:
    def serialize(self, value): return value

class Costly:
    def __init__(self): raise OSError("no such host")

def function(): pass
"""


@pytest.fixture
async def code() -> AsyncIterator[CodeCheck]:
    processes = ProcessRuntime()
    check = CodeCheck(processes.examine, processes.read_source)
    yield check
    await check.close()
    await processes.close()


def package(place: Path, source: str, requirements: str = "") -> Path:
    place.mkdir()
    (place / "m.py").write_text(source)
    (place / "serdes.py").write_text(SERDES)
    if requirements:
        (place / "requirements.txt").write_text(requirements)
    return place


async def refusal(code: CodeCheck, place: Path, **config: Any) -> str:
    """Return why a function `f` of a module m is refused; empty if it is not."""
    sent = {"tenant": "public", "namespace": "default", "name": "f", "className": "m.f", "inputs": ["in"], **config}
    try:
        await code.check(question_of(place, "m.f", with_defaults(read_function_config(sent))))
    except PackageError as error:
        return str(error)
    return ""


CONTRADICTIONS: dict[str, tuple[str, dict[str, Any], str]] = {
    "schema of an input": (
        "def f(order: dict): pass", {"inputSpecs": {"in": {"schemaType": "STRING"}}},
        "inputSpecs[in].schemaType STRING is str in Python, but parameter order of m.f is dict: change one of them",
    ),
    "custom schema of an input": (
        "def f(x: int): pass", {"customSchemaInputs": {"in": "JSON"}},
        "inputSpecs[in].schemaType JSON requires a dict, a dataclass, a model of pydantic or msgspec, or a Record, but"
        " parameter x of m.f is int: change one of them",
    ),
    "schema without a class": (
        "def f(x): pass", {"inputSpecs": {"in": {"schemaType": "PROTOBUF"}}},
        "inputSpecs[in].schemaType PROTOBUF requires a message class that protoc generated: annotate the parameter with"
        " it, or set inputTypeClassName",
    ),
    "SerDe of an input": (
        "def f(x: dict): pass", {"inputSpecs": {"in": {"serdeClassName": "IdentitySerDe"}}},
        "inputSpecs[in].serdeClassName IdentitySerDe supports bytes, float, int, str, but parameter x of m.f is dict:"
        " remove one of them",
    ),
    "custom SerDe of an input": (
        "def f(x: bytes): pass", {"customSerdeInputs": {"in": "JsonSerDe"}},
        "inputSpecs[in].serdeClassName JsonSerDe supports bool, dict, float, int, list, str, but parameter x of m.f is"
        " bytes: remove one of them",
    ),
    "SerDe of the output": (
        "def f(x) -> dict: pass", {"output": "out", "outputSerdeClassName": "IdentitySerDe"},
        "outputSerdeClassName IdentitySerDe supports bytes, float, int, str, but the return type of m.f is dict: remove"
        " one of them",
    ),
    "schema of the output": (
        "def f(x) -> dict: pass", {"output": "out", "outputSchemaType": "INT64"},
        "outputSchemaType INT64 is int in Python, but the return type of m.f is dict: change one of them",
    ),
    "class of the input": (
        "def f(x: dict): pass", {"inputTypeClassName": "java.lang.String"},
        "inputTypeClassName java.lang.String is str, but parameter x of m.f is dict: remove one of them",
    ),
    "class of the output": (
        "def f(x) -> dict: pass", {"output": "out", "outputTypeClassName": "str"},
        "outputTypeClassName str is str, but the return type of m.f is dict: remove one of them",
    ),
    "class that is not there": (
        "def f(x): pass", {"inputTypeClassName": "m.Order"},
        "inputTypeClassName 'm.Order': module 'm' has no 'Order'; it defines f",
    ),
    "what no message is": (
        "def f(x: set): pass", {},
        "parameter x of m.f is set, which is not a message type: expected str, bytes, int, float, bool,"
        " dict, list, a dataclass, a pydantic or msgspec model, a Protocol Buffers message or a pulsar.schema Record;"
        " or set a SerDe or a schemaType",
    ),
    "what no output is": (
        "from decimal import Decimal\ndef f(x) -> Decimal: pass", {"output": "out"},
        "the return type of m.f is Decimal, which is not a message type: expected str, bytes, int, float, bool,"
        " dict, list, a dataclass, a pydantic or msgspec model, a Protocol Buffers message or a pulsar.schema Record;"
        " or set a SerDe or a schemaType",
    ),
    "a method": (
        "class f:\n def process(self, order: dict, context): pass", {"inputSpecs": {"in": {"schemaType": "STRING"}}},
        "inputSpecs[in].schemaType STRING is str in Python, but parameter order of m.f is dict: change one of them",
    ),
    "a batch function": (
        "from magnetar import batch_function\n@batch_function\ndef f(all: list[dict]): return all",
        {"customSerdeInputs": {"in": "IdentitySerDe"}},
        "inputSpecs[in].serdeClassName IdentitySerDe supports bytes, float, int, str, but parameter all of m.f is dict:"
        " remove one of them",
    ),
    "SerDe module that is not there": (
        "def f(x): pass", {"customSerdeInputs": {"in": "sedres.Own"}},
        "SerDe 'sedres.Own': the package has no module 'sedres': use the file name without .py as the module name",
    ),
    "SerDe class that is not there": (
        "def f(x): pass", {"customSerdeInputs": {"in": "serdes.Owm"}},
        "SerDe 'serdes.Owm': module 'serdes' has no 'Owm'; it defines Costly, Half, Own, function",
    ),
    "no SerDe": (
        "def f(x): pass", {"output": "out", "outputSerdeClassName": "serdes.Half"},
        "SerDe 'serdes.Half' has no method deserialize",
    ),
    "no class": (
        "def f(x): pass", {"customSerdeInputs": {"in": "serdes.function"}},
        "SerDe 'serdes.function' names a function, not a class",
    ),
    "no schema": (
        "def f(x): pass", {"inputSpecs": {"in": {"schemaType": "serdes.Own"}}},
        "inputSpecs[in].schemaType serdes.Own is neither a schema of magnetar.client nor one of pulsar.schema: derive"
        " it from one of them",
    ),
}  # fmt: skip


async def test_contradictions_are_refused_in_the_words_of_an_instance(code: CodeCheck, tmp_path: Path) -> None:
    found = {
        kind: await refusal(code, package(tmp_path / kind, source), **config)
        for kind, (source, config, _) in CONTRADICTIONS.items()
    }
    assert found == {kind: reason for kind, (*_, reason) in CONTRADICTIONS.items()}


GUARDED = "try:\n from no_such_library import Base\nexcept ImportError:\n Base = object\nclass Order(Base): pass\n"


POSSIBLE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("def f(x: dict) -> str: pass", {"customSerdeInputs": {"in": "JsonSerDe"}}),
    ("def f(x: dict): pass", {"inputSpecs": {"in": {"schemaType": "JSON"}}}),
    ("def f(x: dict): pass", {"inputSpecs": {"in": {"schemaType": "AVRO"}}}),
    ("def f(x) -> dict: pass", {"output": "out", "outputSchemaType": "AVRO"}),
    ("def f(x): pass", {"inputSpecs": {"in": {"schemaType": "AUTO_CONSUME"}}}),
    ("def f(x: set): pass", {"customSerdeInputs": {"in": "serdes.Own"}}),
    ("def f(x) -> None: pass", {"output": "out"}),
    ("def f(x: 'Missing') -> 'Missing': pass", {}),
    ("class f:\n def __init__(self): self.process = print", {"customSerdeInputs": {"in": "serdes.Half"}}),
    ("def f(x): pass", {"customSerdeInputs": {"in": "serdes.Costly"}}),
    (GUARDED + "def f(x: Order): pass", {}),
    ("import no_such_library\ndef f(x: set): pass", {}),
)


async def test_what_may_work_is_taken(code: CodeCheck, tmp_path: Path) -> None:
    for number, (source, config) in enumerate(POSSIBLE):
        assert await refusal(code, package(tmp_path / str(number), source), **config) == "", source


async def test_what_requirements_may_bring_is_not_judged(code: CodeCheck, tmp_path: Path) -> None:
    alone = package(tmp_path / "alone", "def f(x): pass")
    installing = package(tmp_path / "installing", "def f(x): pass", "no-such-library")
    theirs = {"customSerdeInputs": {"in": "no_such_library.serdes.Own"}}
    assert "the package has no module" in await refusal(code, alone, **theirs)
    assert await refusal(code, installing, **theirs) == ""
    own = {"customSerdeInputs": {"in": "serdes.Missing"}}
    assert "has no 'Missing'" in await refusal(code, installing, **own)


async def test_a_package_is_examined_again_for_other_types_only(code: CodeCheck, tmp_path: Path) -> None:
    asked: list[Question] = []

    def examine(question: Question) -> Awaitable[str | None]:
        asked.append(question)
        return given(question)

    given, code._examine = code._examine, examine
    place = package(tmp_path / "p", "def f(x: dict): pass")
    assert await refusal(code, place, parallelism=2) == ""
    assert await refusal(code, place, customSerdeInputs={"in": "IdentitySerDe"}) != ""
    assert len(asked) == 2
    assert await refusal(code, place, parallelism=3, inputs=["other"], output="out") == ""
    assert len(asked) == 2


async def test_a_spark_function_is_not_loaded(tmp_path: Path) -> None:
    nobody: Any = None
    sent = {"tenant": "public", "namespace": "default", "name": "f", "className": "m.f", "inputs": ["in"]}
    config = with_defaults(read_function_config({**sent, "runtimeEnv": "spark"}))
    place = package(tmp_path / "p", "def f(x: set): pass")
    await PackageIntake(nobody, nobody, nobody, nobody, has_state=True)._examine(place, "m.f", config)
