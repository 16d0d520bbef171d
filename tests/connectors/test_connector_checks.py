"""What a connector is asked before it is created: its settings, and whether it can be effectively once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from magnetar.api.connector import Record, Sink, Source
from magnetar.api.connector_config import option, read_config
from magnetar.config.connector_config import SourceConfig
from magnetar.config.connector_conversion import IDENTITY
from magnetar.config.rules import with_defaults
from magnetar.connectors.register import find
from magnetar.errors import InvalidConfig
from magnetar.instance.connectors.loading import check_connector
from magnetar.wire.functions_pb2 import FunctionMetaData
from magnetar.worker.functions.components import SINK, SOURCE, Component


@dataclass
class PairConfig:
    """Two settings that exclude each other."""

    left: str = option("One.", default="")
    right: str = option("The other.", default="")


class Keyed(Sink):
    """Takes a key or says that it doubles."""

    config = PairConfig

    def check(self, config: PairConfig) -> None:
        if config.left and config.right:
            raise InvalidConfig("left and right exclude each other; give one of them")

    def not_effectively_once(self, config: PairConfig) -> str:
        return "" if config.left else "without left a record that comes again is added"

    def write(self, record: Record) -> None:
        """Take it."""


def test_settings_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="left and right exclude each other"):
        check_connector(Keyed(), PairConfig("a", "b"), is_exact=False)
    check_connector(Keyed(), PairConfig("a"), is_exact=False)


def test_effectively_once_is_refused_with_the_connector_s_reason() -> None:
    with pytest.raises(InvalidConfig, match="EFFECTIVELY_ONCE: without left a record that comes again is added; use"):
        check_connector(Keyed(), PairConfig(), is_exact=True)
    check_connector(Keyed(), PairConfig("a"), is_exact=True)
    check_connector(Keyed(), PairConfig(), is_exact=False)


@pytest.mark.parametrize(
    ("name", "configs"),
    [
        ("jdbc-poll", {"jdbcUrl": "jdbc:sqlite:/t.db", "tableName": "t", "incrementingColumn": "id"}),
        ("postgres-cdc", {"database.hostname": "h", "database.user": "u", "database.dbname": "d"}),
        ("websocket", {"url": "ws://h/"}),
        ("kafka", {"bootstrapServers": "h:1", "topic": "t", "groupId": "g", "partition": 3}),
    ],
)
def test_source_with_one_reader_is_refused_with_several_instances(name: str, configs: dict[str, Any]) -> None:
    source = find("source", name)()
    config = read_config(source.config, configs)
    check_connector(source, config, is_exact=False, parallelism=1)
    with pytest.raises(InvalidConfig, match="parallelism must be 1, not 3: "):
        check_connector(source, config, is_exact=False, parallelism=3)


def test_a_connector_that_says_nothing_cannot_be_effectively_once() -> None:
    class Silent(Source):
        def read(self) -> None:
            return None

    with pytest.raises(InvalidConfig, match="Silent does not declare whether redelivered records"):
        check_connector(Silent(), {}, is_exact=True)


def test_create_asks_an_installed_connector() -> None:
    json: dict[str, object] = {"tenant": "t", "namespace": "n", "name": "s", "sinkType": "console", "inputs": ["in"]}
    SINK.check(with_defaults(SINK.read(json)))
    with pytest.raises(InvalidConfig, match="EFFECTIVELY_ONCE: a redelivered record is logged again"):
        SINK.check(with_defaults(SINK.read(json | {"processingGuarantees": "EFFECTIVELY_ONCE"})))
    json = {"tenant": "t", "namespace": "n", "name": "s", "sourceType": "cron", "topicName": "out"}
    json |= {"configs": {"schedule": "* * * * * *"}, "processingGuarantees": "EFFECTIVELY_ONCE"}
    with pytest.raises(InvalidConfig, match="processingGuarantees cannot be EFFECTIVELY_ONCE"):
        SOURCE.check(with_defaults(SOURCE.read(json)))


CREATE: dict[str, object] = {"tenant": "t", "namespace": "n", "name": "s", "sinkType": "console", "inputs": ["in"]}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"transformFunction": "t.py"}, "transformFunction requires"),
        ({"transformFunctionConfig": "{}"}, "transformFunctionConfig requires"),
        (
            {"transformFunctionClassName": "t.f", "transformFunctionConfig": "{"},
            "transformFunctionConfig is not valid JSON",
        ),
        ({"transformFunctionClassName": "t.f", "transformFunctionConfig": "[]"}, "must be a JSON object"),
        (
            {"transformFunctionClassName": "t.f", "transformFunction": "http://x/y.py"},
            "must be an uploaded file, not a URL",
        ),
        (
            {"sinkType": None, "archive": "a.py", "transformFunctionClassName": "t.f", "transformFunction": "t.py"},
            "include the function in the connector's archive",
        ),
        ({"maxMessageRetries": -1}, "maxMessageRetries must be 0 or more, not -1"),
        ({"negativeAckRedeliveryDelayMs": -1}, "negativeAckRedeliveryDelayMs must be 0 or more, not -1"),
    ],
)
def test_settings_of_transform_functions_and_retries_are_refused_by_name(change: dict[str, object], text: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        SINK.check(with_defaults(SINK.read(CREATE | change)))
    assert text in str(refused.value)


@pytest.mark.parametrize("component", [SINK, SOURCE])
def test_transform_functions_are_kept_in_the_record(component: Component) -> None:
    of_source = {"sourceType": "generator", "topicName": "out", "sinkType": None, "inputs": None}
    json = CREATE | (of_source if component is SOURCE else {})
    transform = {"transformFunctionClassName": "t.f", "transformFunctionConfig": '{"a": 1}'}
    config = with_defaults(component.read(json | transform))
    component.check(config)
    details = component.to_details(config)
    assert (details.className, details.userConfig) == ("t.f", '{"a": 1}')
    shown = component.to_json(FunctionMetaData(functionDetails=details))
    assert {name: shown[name] for name in transform} == transform
    without = component.merge(component.from_details(details), component.read(json | dict.fromkeys(transform, "")))
    plain = component.to_details(without)
    assert (plain.className, plain.userConfig) == (IDENTITY, "")
    assert component.from_details(plain).transform_function_class_name is None


def test_sink_that_cannot_write_is_refused_before_it_is_given_records() -> None:
    class Silent(Sink):
        pass

    with pytest.raises(InvalidConfig, match="Silent has neither write nor write_batch: define one of them"):
        check_connector(Silent(), {}, is_exact=False)


def stored(configs: dict[str, object], before: SourceConfig | None = None) -> Mapping[str, Any]:
    """Return the configs that a file source is stored with."""
    config = SourceConfig(archive="builtin://file", configs={"inputDirectory": "/in", **configs})
    completed: SourceConfig = SOURCE.complete(config, before)
    return completed.configs or {}


def test_new_file_source_is_stored_with_keep_file() -> None:
    assert stored({}) == {"inputDirectory": "/in", "keepFile": True}
    assert stored({"processedFileSuffix": ".done"})["keepFile"] is False
    assert stored({"keepFile": False})["keepFile"] is False


def test_file_source_without_keep_file_in_its_record_goes_on_deleting_until_it_is_set() -> None:
    old = SourceConfig(archive="builtin://file", configs={"inputDirectory": "/in"})
    assert stored({"recurse": False}, old) == {"inputDirectory": "/in", "recurse": False}
    assert stored({"keepFile": True}, old)["keepFile"] is True
    assert "deletes the files in '/in'" in SOURCE.notice(old)
    other = SourceConfig(archive="builtin://generator", configs={})
    assert stored({}, other)["keepFile"] is True


@pytest.mark.parametrize(
    ("configs", "is_warned"),
    [
        ({}, True), ({"keepFile": False}, True), ({"keepFile": True}, False), ({"tail": True}, False),
        ({"processedFileSuffix": ".x"}, False),
    ],
)  # fmt: skip
def test_only_a_file_source_that_deletes_has_a_notice(configs: dict[str, object], is_warned: bool) -> None:
    config = SourceConfig(archive="builtin://file", configs={"inputDirectory": "/in", **configs})
    assert bool(SOURCE.notice(config)) == is_warned
