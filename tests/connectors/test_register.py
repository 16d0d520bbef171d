"""The register of connectors: which one a name means, and what is wrong with those of other packages."""

from __future__ import annotations

import importlib.metadata
from importlib.metadata import EntryPoint

import pytest
from magnetar.api.connector import Record, Sink, Source
from magnetar.connectors import register
from magnetar.errors import InvalidConfig


class Tick(Source):
    """Ticks."""

    def read(self) -> Record:
        """Return a tick."""
        return Record("tick")


class Shout(Sink):
    """Shouts."""

    def write(self, record: Record) -> None:
        """Take it."""


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package whose entry points are these."""
    names = {
        "tick": "Tick", "shout": "Shout", "jdbc": "Tick", "file": "Tick", "data-generator": "Tick", "gone": "Gone",
    }  # fmt: skip
    points = [EntryPoint(name, f"{__name__}:{value}", register.GROUP) for name, value in names.items()]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points if group == register.GROUP else [])


def test_a_name_means_a_connector_of_the_kind_that_is_asked_for() -> None:
    assert register.find("source", "tick") is Tick
    assert register.find("sink", "shout") is Shout
    assert register.find("source", "jdbc") is Tick  # the sink that comes with Magnetar takes no source's name
    assert register.find("source", "file") is not Tick


@pytest.mark.parametrize(
    ("kind", "name", "hint"),
    [
        (
            "source",
            "shout",
            "unknown source 'shout', but a sink exists (`magnetar sinks create`): expected one of cron, ",
        ),
        (
            "sink",
            "tick",
            "unknown sink 'tick', but a source exists (`magnetar sources create`): expected one of console, ",
        ),
        (
            "sink",
            "cron",
            "unknown sink 'cron', but a source exists (`magnetar sources create`): expected one of console, ",
        ),
        ("sink", "nope", "unknown sink 'nope': expected one of console, "),
        ("source", "gone", "cannot import connector 'gone': AttributeError: "),
    ],
)
def test_a_connector_of_the_other_kind_is_refused(kind: str, name: str, hint: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        register.find(kind, name)
    assert str(raised.value).startswith(hint)


def test_a_name_that_is_taken_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    found = {definition.name: definition.class_name for definition in register.available("source")}
    assert found["tick"] == f"{__name__}.Tick"
    assert found["file"] == "magnetar.connectors.file_source.FileSource"
    assert "data-generator" not in found
    for name in ("file", "data-generator"):
        assert caplog.text.count(f"ignored connector {__name__}:Tick: another source is already named {name}") == 1
    assert caplog.text.count("cannot import connector 'gone'") == 1
