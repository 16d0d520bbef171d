"""Every field of the tables has a flag, is read, is kept in the record, is shown, and stands in the documentation."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import magnetar
import pytest
from magnetar.config.conversion import from_details, read_function_config, to_details, to_json
from magnetar.config.crypto_config import CryptoConfig
from magnetar.config.function_config import (
    FUNCTION_FIELDS,
    FUNCTION_FLAGS,
    BatchingConfig,
    ConsumerSpec,
    FunctionConfig,
    ProducerSpec,
    Resources,
)
from magnetar.config.rules import with_defaults
from magnetar.config.table import Field, fields_of, from_message, show, to_message
from magnetar.errors import InvalidConfig
from magnetar.wire import functions_pb2 as records

from tests.config.test_rules import registered

DOCS = Path(magnetar.__file__).parent / "docs" / "reference" / "function-config.md"

WITHOUT_FLAG = {
    "tenant": "a flag of all commands that name a function",
    "namespace": "a flag of all commands that name a function",
    "name": "a flag of all commands that name a function",
    "fqfn": "a flag of all commands that name a function",
    "runtime": "follows from --py",
    "outputSchemaProperties": "part of --custom-schema-outputs",
}
NOT_IN_THE_RECORD = {
    "windowConfig": "refused whatever it holds",
    "batchBuilder": "part of producerConfig",
    "py": "the record has the package's location",
    "fqfn": "only compared",
    "runtimeEnv": "part of customRuntimeOptions",
    "minPartitions": "part of customRuntimeOptions",
    "maxPendingAsyncRequests": "part of customRuntimeOptions",
    "exposePulsarAdminClientEnabled": "part of customRuntimeOptions",
    "runTimeLimitMs": "part of customRuntimeOptions",
    "cron": "part of customRuntimeOptions",
    "backlogTrigger": "part of customRuntimeOptions",
    "continuousIntervalMs": "part of customRuntimeOptions",
    "sql": "part of customRuntimeOptions",
    "customRuntimeOptions": "made of runtimeEnv and minPartitions",
}
CANDIDATES = (
    '{"minPartitions": 4}', "ATMOST_ONCE", "Earliest", "thread", "JAVA", "ZSTD", True, False, 7, 1.5, ["in"],
    {"k": "v"}, {"cpu": 2.0}, {"compressionType": "ZSTD"}, {"in": {"receiverQueueSize": 7}},
    "KEY_BASED", {"enabled": False}, {"encryptionKeys": ["k"]}, "SEND", "DISCARD",
)  # fmt: skip
"""JSON values of every kind, of which every field takes one."""
MESSAGES: dict[type, type] = {
    BatchingConfig: records.BatchingSpec,
    ConsumerSpec: records.ConsumerSpec,
    CryptoConfig: records.CryptoSpec,
    ProducerSpec: records.ProducerSpec,
    Resources: records.Resources,
}


def sample(field: Field) -> Any:
    """A JSON value that a field takes, and that is not what it has without one."""
    for value in CANDIDATES:
        try:
            if field.kind.read(field.name, value) not in (field.default, None):
                return value
        except InvalidConfig:
            continue
    raise AssertionError(f"give {field.name} a value in CANDIDATES")


def every(fields: Iterable[Field]) -> pytest.MarkDecorator:
    """Run a test for each field."""
    return pytest.mark.parametrize("field", [pytest.param(field, id=field.name) for field in fields])


def nested_fields() -> list[tuple[type, Field]]:
    return [(config, field) for config in MESSAGES for field in fields_of(config)]


@every(FUNCTION_FIELDS)
def test_field_has_a_flag_or_a_reason(field: Field) -> None:
    has_flag = any(path.split(".")[0] == field.name for path, _ in FUNCTION_FLAGS)
    assert has_flag or field.refused or field.name in WITHOUT_FLAG
    assert field.help


@every(field for _, field in FUNCTION_FLAGS)
def test_flag_gives_what_the_field_reads(field: Field) -> None:
    value = sample(field)
    text = ",".join(value) if isinstance(value, list) else value if isinstance(value, str) else json.dumps(value)
    assert field.kind.parse(text) == value


@every(FUNCTION_FIELDS)
def test_field_is_read_from_json(field: Field) -> None:
    value = sample(field)
    before, config = read_function_config({}), read_function_config({field.name: value})
    if field.attribute:
        assert getattr(config, field.attribute) == field.kind.read(field.name, value)
    elif field.refused:
        assert config.refused == {field.name: field.refused}
    else:
        assert config != before
    with pytest.raises(InvalidConfig, match=f"^{field.name} must be "):
        read_function_config({field.name: 1j})
    assert read_function_config({field.name: None}) == before


@every(fields_of(FunctionConfig))
def test_field_survives_the_record(field: Field) -> None:
    value = field.kind.read(field.name, sample(field))
    value = with_defaults(value) if type(value) in MESSAGES else value
    before = replace(registered(), max_message_retries=1)  # without which no deadLetterTopic is kept
    details = to_details(replace(before, **{field.attribute: value}))
    if field.name in NOT_IN_THE_RECORD:
        return
    assert field.record
    assert getattr(from_details(details), field.attribute) == value
    answer = to_json(records.FunctionMetaData(functionDetails=details))
    assert answer.get(field.name) == field.kind.show(value)


@pytest.mark.parametrize(
    ("config", "field"), [pytest.param(*found, id=f"{found[0].__name__}.{found[1].name}") for found in nested_fields()]
)
def test_field_of_an_inner_object_survives_the_record(config: type, field: Field) -> None:
    value = field.kind.read(field.name, sample(field))
    changed = config(**{field.attribute: value})
    again: Any = from_message(config, MESSAGES[config](**to_message(changed)))
    if field.record:
        assert getattr(again, field.attribute) == value
        assert show(again)[field.name] == field.kind.show(value)
    else:
        assert field.refused
    assert field.help


# -- the documentation ----------------------------------------------------------------------------------------------


def flattened(fields: Iterable[Field], where: str = "") -> list[tuple[str, Field]]:
    """Fields and those of the objects in them, with the names that the documentation gives them."""
    found = []
    for field in fields:
        found.append((where + field.name, field))
        if not field.refused:
            found += flattened(
                field.kind.members, f"{where}{field.name}.{'TOPIC.' if field.name == 'inputSpecs' else ''}"
            )
    return found


def table() -> str:
    order = list(dict.fromkeys(path.split(".")[0] for path, _ in FUNCTION_FLAGS))
    fields = sorted(FUNCTION_FIELDS, key=lambda field: order.index(field.name) if field.name in order else -1)
    rows = ["| field | flags | | default |", "| --- | --- | --- | --- |"]
    for name, field in flattened(fields):
        if field.refused:
            continue
        flags = ", ".join(f"`{flag}`" for flag in field.flags.split() if flag == flag.lower())
        default = "" if field.default in (None, {}) or field.kind.members else f"`{json.dumps(field.default)}`"
        text = re.sub(r"(\{.*\})", r"`\1`", field.help.rstrip("."))
        fixed = ". An update cannot change it" if field.fixed else ""
        rows.append(f"| `{name}` | {flags} | {text}{fixed} | {default} |")
    refused = ", ".join(f"`{name}`" for name, field in flattened(fields) if field.refused)
    paragraph = textwrap.fill(f"Not supported, and refused by name: {refused}.", 128, break_long_words=False)
    return "\n".join([*rows, "", paragraph])


def test_table_of_the_documentation_is_that_of_the_code() -> None:
    section = DOCS.read_text().split("## Fields\n")[1].split("\n## ")[0]
    expected = table()
    assert expected in section, f"put this into docs/reference/function-config.md:\n{expected}"


def test_record_of_another_system_is_shown_with_all_that_pulsar_shows() -> None:
    details = records.FunctionDetails(tenant="t", namespace="n", name="f", className="a.B")
    details.retryDetails.deadLetterTopic = "lost"
    shown = to_json(records.FunctionMetaData(functionDetails=details))
    assert shown["parallelism"] == shown["maxMessageRetries"] == 0
    assert shown["userConfig"] == {}
    assert shown["resources"] == {"cpu": 0.0, "ram": 0, "disk": 0}
    assert shown["producerConfig"]["compressionType"] == "LZ4"
