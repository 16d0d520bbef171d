"""A table of another config: all that follows from its rows, without anything of functions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click
import pytest
from click.testing import CliRunner
from magnetar.cli.config_flags import build_config, config_options
from magnetar.config.rules import check_fixed, overlay, refusals, with_defaults
from magnetar.config.table import (
    CLEARABLE_TEXT,
    INTEGER,
    OBJECT,
    TEXT,
    attributes,
    by_name,
    fields_of,
    from_message,
    nested,
    one_of,
    option,
    read_fields,
    show,
    to_message,
    with_flags,
)
from magnetar.errors import InvalidConfig
from magnetar.wire.functions_pb2 import FunctionDetails


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    cpu: int | None = option("cpu", INTEGER, "Cores.", flags="--cpu", default=1, record="cpu")
    disk: int | None = option("disk", INTEGER, "Bytes.", record="disk", refused="there is none; leave it out")


@dataclass(frozen=True, slots=True, kw_only=True)
class PumpConfig:
    name: str | None = option("pumpName", TEXT, "Name.", flags="--pump-name --pumpName", alias="label", record="name")
    topic: str | None = option("topic", CLEARABLE_TEXT, "Topic.", flags="--topic", record="sink.topic")
    language: str | None = option(
        "runtime", one_of("PYTHON", "GO"), "Language.", record="runtime", default="PYTHON", fixed="It stays"
    )
    limits: Limits | None = option("resources", nested(Limits), "Limits.", default=Limits(), record="resources")  # noqa: RUF009
    settings: Mapping[str, Any] | None = option("settings", OBJECT, "Settings.", default={}, record="userConfig")


FIELDS = by_name(fields_of(PumpConfig))
FLAGS = tuple(with_flags(fields_of(PumpConfig)))
SENT = {"label": "p", "topic": "t", "resources": {"cpu": 2}}


def read(sent: dict[str, Any]) -> PumpConfig:
    return PumpConfig(**attributes(FIELDS, read_fields(FIELDS, sent)))


def test_what_was_sent_is_read_completed_kept_and_shown() -> None:
    config = with_defaults(read(SENT))
    assert config == PumpConfig(name="p", topic="t", language="PYTHON", limits=Limits(cpu=2), settings={})
    details = FunctionDetails(**to_message(config))
    assert (details.name, details.sink.topic, details.runtime, details.resources.cpu) == ("p", "t", 1, 2)
    assert from_message(PumpConfig, details).settings == {}
    assert show(config) == {
        "pumpName": "p", "topic": "t", "runtime": "PYTHON", "resources": {"cpu": 2}, "settings": {},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ({"topik": "t"}, "unknown field topik: did you mean topic?"),
        ({"resources": {"gpu": 1}}, "resources: unknown field gpu: did you mean cpu?"),
        ({"resources": {"cpu": "x"}}, 'resources.cpu must be a whole number, not "x"'),
        ({"runtime": "RUST"}, "invalid runtime 'RUST': expected one of PYTHON, GO"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(sent: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        read(sent)
    assert str(caught.value) == reason


def test_refused_field_is_named_with_its_reason() -> None:
    assert list(refusals(Limits(cpu=1, disk=5), "resources.")) == [("resources.disk", "there is none; leave it out")]


def test_update_replaces_what_was_sent_but_what_is_fixed() -> None:
    existing = with_defaults(read(SENT))
    assert overlay(existing, read({"pumpName": "q", "topic": ""})) == with_defaults(
        read({"pumpName": "q", "resources": {"cpu": 2}})
    )
    check_fixed(existing, read({"runtime": "PYTHON"}))
    with pytest.raises(InvalidConfig, match="It stays"):
        check_fixed(existing, read({"runtime": "GO"}))


def test_flags_are_those_of_the_rows() -> None:
    @click.command()
    @config_options(FLAGS, "--pump-config-file")
    def create(**given: str | None) -> None:
        click.echo(json.dumps(build_config(FLAGS, given.pop("config_file"), given)))

    shown = CliRunner().invoke(create, ["--help"]).output
    assert "--pump-name TEXT" in shown
    assert "--pumpName" not in shown
    result = CliRunner().invoke(create, ["--pumpName", "p", "--cpu", "2"])
    assert json.loads(result.output) == {"pumpName": "p", "resources": {"cpu": 2}}
