"""What the sink ``jdbc`` says of its settings before it asks any database."""

from __future__ import annotations

from typing import Any

import pytest
from magnetar.api.connector_config import read_config
from magnetar.connectors.jdbc_sink import JdbcSink
from magnetar.connectors.sql_databases import sqlalchemy_url
from magnetar.errors import InvalidConfig


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("jdbc:postgresql://h:5/d?user=u&password=p%40&ssl=true", "postgresql+psycopg://u:p%40@h:5/d?sslmode=require"),
        ("jdbc:mariadb://h/d", "mysql+pymysql://h/d"),
        ("jdbc:mysql://h:3306/d", "mysql+pymysql://h:3306/d"),
        ("jdbc:sqlite:/a/b.db", "sqlite:////a/b.db"),
        ("postgresql://u:p@h/d", "postgresql+psycopg://u:p@h/d"),
        ("postgresql+psycopg://h/d", "postgresql+psycopg://h/d"),
        ("sqlite:////a/b.db", "sqlite:////a/b.db"),
    ],
)
def test_url_becomes_that_of_sqlalchemy(given: str, made: str) -> None:
    assert sqlalchemy_url(given) == made


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("", "expected a database URL"),
        ("jdbc:oracle:thin:@h", "expected a database URL"),
        ("jdbc:postgresql://h:port/d", "Port could not be cast"),
        ("jdbc:postgresql://h:5432", "expected a host and a database"),
        ("jdbc:postgresql://u:geheim@:5/d", "expected a host"),
        ("jdbc:postgresql://h/d?socketTimeout=5", "unknown parameter 'socketTimeout'"),
        ("jdbc:sqlite::memory:", "expected a file"),
    ],
)
def test_malformed_url_is_refused_without_its_password(given: str, text: str) -> None:
    with pytest.raises(InvalidConfig, match=text) as caught:
        sqlalchemy_url(given)
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"key": "id", "nonKey": "id"}, "column 'id' is in both key and nonKey"),
        ({"excludeNonDeclaredFields": True}, "requires key or nonKey"),
        ({"nullValueAction": "DELETE"}, "nullValueAction DELETE requires key"),
        ({"envelope": "change", "key": "id"}, "requires insertMode UPSERT"),
        ({"createTable": {"a": "integer"}, "key": "id"}, "createTable is missing the key column 'id'"),
        ({"createTable": {"a": 5}}, "invalid createTable"),
        ({"jdbcUrl": "oracle+oracledb://h/d"}, "unsupported database 'oracle' in jdbcUrl"),
        ({"tableName": ""}, "tableName must not be empty"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(change: dict[str, Any], text: str) -> None:
    sink = JdbcSink()
    given = {"jdbcUrl": "jdbc:sqlite:/x.db", "tableName": "t", **change}
    with pytest.raises(InvalidConfig, match=text):
        sink.check(read_config(sink.config, given))


def test_only_transactions_are_effectively_once() -> None:
    sink = JdbcSink()
    given = {"jdbcUrl": "jdbc:sqlite:/x.db", "tableName": "t"}
    assert sink.not_effectively_once(read_config(sink.config, given)) == ""
    assert "useTransactions" in sink.not_effectively_once(read_config(sink.config, {**given, "useTransactions": False}))
    assert "positionsTable" in sink.not_effectively_once(read_config(sink.config, {**given, "positionsTable": ""}))
