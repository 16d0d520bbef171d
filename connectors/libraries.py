"""Third-party libraries of connectors, and the extras that install them.

`LIBRARIES` lists all libraries. Create, update and localrun check for libraries with `missing`, without importing them.
Connectors import libraries with `need`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any, NamedTuple

from ..errors import InvalidConfig


class Libraries(NamedTuple):
    """The libraries of a connector, or of one of its formats.

    Attributes:
        extra: the extra that installs the libraries, as in ``magnetar[kafka]``.
        modules: the top-level modules to import.
    """

    extra: str
    modules: tuple[str, ...]


LIBRARIES: Mapping[str, Libraries] = {
    "delta": Libraries("delta", ("deltalake", "pyarrow")),
    "elasticsearch": Libraries("elasticsearch", ("opensearchpy",)),
    "file:parquet": Libraries("parquet", ("pyarrow",)),
    "iceberg": Libraries("iceberg", ("pyiceberg", "pyarrow")),
    "jdbc": Libraries("jdbc", ("sqlalchemy",)),
    "jdbc:postgresql": Libraries("jdbc", ("psycopg",)),
    "jdbc:mysql": Libraries("jdbc", ("pymysql",)),
    "jdbc-poll": Libraries("jdbc", ("sqlalchemy",)),
    "jdbc-poll:postgresql": Libraries("jdbc", ("psycopg",)),
    "jdbc-poll:mysql": Libraries("jdbc", ("pymysql",)),
    "kafka": Libraries("kafka", ("confluent_kafka",)),
    "mongodb": Libraries("mongodb", ("pymongo", "bson")),
    "mqtt": Libraries("mqtt", ("paho",)),
    "nats": Libraries("nats", ("nats",)),
    "opensearch": Libraries("elasticsearch", ("opensearchpy",)),
    "postgres-cdc": Libraries("postgres-cdc", ("psycopg",)),
    "rabbitmq": Libraries("rabbitmq", ("pika",)),
    "redis": Libraries("redis", ("redis",)),
    "redis-streams": Libraries("redis", ("redis",)),
    "s3:s3": Libraries("s3", ("boto3", "botocore", "urllib3")),
    "s3:parquet": Libraries("s3", ("pyarrow",)),
    "websocket": Libraries("websocket", ("websockets",)),
}
"""Libraries by connector. The part after a colon is a format, or the scheme of a path or database URL."""

_PACKAGES = {
    "bson": "pymongo",
    "confluent_kafka": "confluent-kafka",
    "nats": "nats-py",
    "opensearchpy": "opensearch-py",
    "paho": "paho-mqtt",
    "pymysql": "PyMySQL",
    "sqlalchemy": "SQLAlchemy",
}
"""Package names by module name, where the names differ."""


def missing(connector: str, variants: Iterator[str]) -> str:
    """Return which libraries of a connector are missing and how to install them, or an empty string.

    Args:
        connector: name of a built-in connector.
        variants: formats and schemes used in the configuration.
    """
    found = [LIBRARIES[key] for key in (connector, *(f"{connector}:{one}" for one in variants)) if key in LIBRARIES]
    absent = dict.fromkeys(
        _package(module) for libraries in found for module in libraries.modules if find_spec(module) is None
    )
    return _text(connector, " and ".join(absent), found[0].extra) if absent else ""


def need(extra: str, module: str, connector: str = "") -> Any:
    """Import and return a module. Call this in a connector's ``open``.

    Args:
        extra: the extra that installs the module, as in ``magnetar[kafka]``.
        module: dotted module name.
        connector: connector name, if it differs from the extra.

    Raises:
        InvalidConfig: the module is not installed or cannot be imported. The message explains how to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        is_absent = isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")
        cause = "" if is_absent else f" ({error})"
        raise InvalidConfig(_text(connector or extra, _package(module.partition(".")[0]) + cause, extra)) from error


def _package(module: str) -> str:
    return _PACKAGES.get(module, module)


def _text(connector: str, packages: str, extra: str) -> str:
    return f"connector {connector} requires {packages}: pip install 'magnetar[{extra}]'"
