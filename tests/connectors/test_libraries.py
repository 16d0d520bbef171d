"""A library that is not installed is named, with what to install."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from magnetar.api.connector_config import fields_of, read_config
from magnetar.config.rules import with_defaults
from magnetar.connectors import libraries as libraries_module
from magnetar.connectors.libraries import LIBRARIES, need
from magnetar.connectors.register import BUILT_IN, find, missing_libraries
from magnetar.errors import InvalidConfig
from magnetar.worker.functions.components import SINK, SOURCE, Component

from tests.connectors.direct import DirectContext


def test_need_imports_a_module() -> None:
    assert need("none", "json") is json


def test_need_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("paho", "paho.mqtt", "paho.mqtt.client"):
        monkeypatch.setitem(sys.modules, module, None)
    text = "connector mqtt requires paho-mqtt: pip install 'magnetar[mqtt]'"
    with pytest.raises(InvalidConfig, match=re.escape(text)):
        need("mqtt", "paho.mqtt.client")
    text = "connector jdbc-poll requires no_such_module_at_all: pip install 'magnetar[jdbc]'"
    with pytest.raises(InvalidConfig, match=re.escape(text)):
        need("jdbc", "no_such_module_at_all", "jdbc-poll")


def test_need_says_why_a_module_that_is_there_cannot_be_imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("modules")
    (directory / "broken_for_need.py").write_text("raise ImportError('libpq is missing')\n")
    monkeypatch.syspath_prepend(directory)
    with pytest.raises(InvalidConfig, match=r"requires broken_for_need \(libpq is missing\): pip install"):
        need("jdbc", "broken_for_need")


# -- the whole register ------------------------------------------------------------------------------------------------

REQUIRED: dict[str, Any] = {
    "influxdbUrl": "http://localhost:8086", "url": "http://localhost", "mongoUri": "mongodb://localhost",
    "elasticSearchUrl": "http://localhost:9200", "amqpUri": "amqp://localhost", "bootstrapServers": "localhost:9092",
    "redisHosts": "localhost:6379", "inputDirectory": "/in", "outputDirectory": "/out", "jdbcUrl": "jdbc:sqlite:/x.db",
    "hostname": "localhost", "port": 1, "columns": ["id"], "catalogProperties": {"type": "sql"},
    "serviceUrl": "pulsar://localhost:6650", "path": "s3://b/p",
}  # fmt: skip
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "jdbc": [{"jdbcUrl": "jdbc:postgresql://h/d"}, {"jdbcUrl": "jdbc:mysql://h/d"}, {"jdbcUrl": "jdbc:sqlite:/x.db"}],
    "jdbc-poll": [{"jdbcUrl": "jdbc:postgresql://h/d"}, {"jdbcUrl": "jdbc:mariadb://h/d"}],
    "s3": [{"format": "parquet"}, {"path": "file:///d", "format": "parquet"}, {"path": "file:///d"}],
    "file": [{"format": "parquet"}],
}
"""Settings that need other libraries than the default ones."""


def cases() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name, built in BUILT_IN.items():
        for kind in ("source", "sink"):
            if getattr(built, kind):
                for settings in [{}, *VARIANTS.get(name, [])]:
                    if is_valid(kind, name, settings):
                        yield kind, name, settings


def is_valid(kind: str, name: str, settings: dict[str, Any]) -> bool:
    """Whether a format or scheme is one of this kind."""
    field = next((one for one in fields_of(find(kind, name).config) if one.key == "format"), None)
    formats = field.choices if field else ()
    return settings.get("format", "json") in (*formats, "json") and (
        kind == "source" or not settings.get("path", "").startswith("file:")
    )


def config_of(kind: str, name: str, settings: dict[str, Any]) -> Any:
    config = find(kind, name).config
    required = {one.key: REQUIRED.get(one.key, "x") for one in fields_of(config) if one.is_required}
    return read_config(config, required | settings)


def open_it(connector: Any, config: Any) -> None:
    opening = connector.open(config, DirectContext())
    if opening is not None:
        asyncio.run(opening)


@pytest.mark.parametrize(("kind", "name", "settings"), list(cases()))
def test_every_connector_names_what_is_missing_before_it_is_created(
    monkeypatch: pytest.MonkeyPatch, kind: str, name: str, settings: dict[str, Any]
) -> None:
    """With all optional libraries blocked, each connector either needs none or says how to install its own."""
    needed = {module for libraries in LIBRARIES.values() for module in libraries.modules}
    for module in [*sys.modules, *needed]:
        if module.partition(".")[0] in needed:
            monkeypatch.setitem(sys.modules, module, None)
    config = config_of(kind, name, settings)
    keys = [key for key in LIBRARIES if key.partition(":")[0] == name]
    text = missing_libraries(kind, name, config)
    connector: Any = find(kind, name)()
    if text:
        extra = LIBRARIES[keys[0]].extra
        assert text.startswith(f"connector {name} requires "), text
        assert text.endswith(f": pip install 'magnetar[{extra}]'"), text
        with pytest.raises(InvalidConfig, match="pip install"):
            open_it(connector, config)
    else:
        assert not keys or name in ("file", "s3"), f"{name} has libraries, and none was looked for"
    assert missing_libraries(kind, "no such connector", config) == ""


@pytest.mark.connectors
def test_libraries_that_are_installed_are_not_missing() -> None:
    for kind, name, settings in cases():
        assert missing_libraries(kind, name, config_of(kind, name, settings)) == ""


def test_table_has_every_library_that_a_connector_imports() -> None:
    modules = {module for libraries in LIBRARIES.values() for module in libraries.modules}
    for path in Path(libraries_module.__file__).parent.glob("*.py"):
        for module in re.findall(r'need\("[\w-]+", "(\w+)', path.read_text()):
            assert module in modules, f"{path.name} imports {module}"
    assert {built.extra for built in BUILT_IN.values() if built.extra} <= {one.extra for one in LIBRARIES.values()}


@pytest.mark.parametrize(
    ("component", "config", "text"),
    [
        (SINK, {"sinkType": "jdbc", "inputs": ["a"], "configs": {"jdbcUrl": "jdbc:postgresql://h/d", "tableName": "t"}},
         "connector jdbc requires SQLAlchemy and psycopg: pip install 'magnetar[jdbc]'"),
        (SINK, {"sinkType": "jdbc-postgres", "inputs": ["a"],
                "configs": {"jdbcUrl": "jdbc:postgresql://h/d", "tableName": "t"}}, "psycopg: pip install"),
        (SINK, {"sinkType": "file", "inputs": ["a"], "configs": {"path": "/out", "format": "parquet"}},
         "connector file requires pyarrow: pip install 'magnetar[parquet]'"),
        (SOURCE, {"sourceType": "redis-streams", "topicName": "a", "configs": {"redisHosts": "h", "streams": ["s"]}},
         "connector redis-streams requires redis: pip install 'magnetar[redis]'"),
    ],
)  # fmt: skip
def test_create_refuses_a_connector_without_its_libraries(
    monkeypatch: pytest.MonkeyPatch, component: Component, config: dict[str, Any], text: str
) -> None:
    for module in ("sqlalchemy", "psycopg", "pyarrow", "redis"):
        monkeypatch.setitem(sys.modules, module, None)
    whole = with_defaults(component.read({"tenant": "t", "namespace": "n", "name": "c", **config}))
    with pytest.raises(InvalidConfig, match=re.escape(text)):
        component.check(whole)
