"""Register of installed connectors, both built-in and from other packages.

A package provides connectors with entry points in the group ``magnetar.connectors``:

    [project.entry-points."magnetar.connectors"]
    weather = "weather_connector:WeatherSource"

A module is imported when one of its connectors is used or its fields are requested. It imports third-party libraries in
`open`, so that a connector's fields are available even if its library is not installed.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..api.connector import BatchSource, Connector, Sink, Source
from ..api.connector_config import fields_of
from ..errors import InvalidConfig
from .libraries import missing
from .sql_databases import sqlalchemy_url

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "magnetar.connectors"
_log = logging.getLogger(__name__)


class Built(NamedTuple):
    """A built-in connector.

    Attributes:
        source: class of the source, as ``module:Class`` in this package; empty without a source.
        sink: class of the sink, in the same format; empty without a sink.
        extra: extra that installs its libraries, as in ``magnetar[kafka]``; empty for none.
        aliases: its names in Pulsar.
        unverified: why it has not been tested with a real server, or an empty string.
    """

    source: str = ""
    sink: str = ""
    extra: str = ""
    aliases: tuple[str, ...] = ()
    unverified: str = ""


BUILT_IN: Mapping[str, Built] = {
    "console": Built(sink="console_sink:ConsoleSink"),
    "cron": Built(source="cron_source:CronSource"),
    "delta": Built(sink="delta_sink:DeltaSink", extra="delta"),
    "elasticsearch": Built(
        sink="elasticsearch_sink:ElasticsearchSink",
        extra="elasticsearch",
        aliases=("elastic_search",),
        unverified="tested with OpenSearch 2.19, which has the same API; no Elasticsearch server was available",
    ),
    "file": Built("file_source:FileSource", "file_sink:FileSink"),
    "generator": Built("generator_source:GeneratorSource", aliases=("data-generator",)),
    "http": Built("http_source:HttpSource", "http_sink:HttpSink"),
    "iceberg": Built(sink="iceberg_sink:IcebergSink", extra="iceberg"),
    "influxdb": Built(sink="influxdb_sink:InfluxdbSink"),
    "jdbc": Built(
        sink="jdbc_sink:JdbcSink", extra="jdbc", aliases=("jdbc-postgres", "jdbc-mariadb", "jdbc-mysql", "jdbc-sqlite")
    ),
    "jdbc-poll": Built("jdbc_poll_source:JdbcPollSource", extra="jdbc"),
    "kafka": Built("kafka_source:KafkaSource", "kafka_sink:KafkaSink", extra="kafka"),
    "mongodb": Built(
        sink="mongodb_sink:MongodbSink",
        extra="mongodb",
        aliases=("mongo",),
        unverified="no MongoDB server was available, so only the logic is tested",
    ),
    "mqtt": Built("mqtt_source:MqttSource", "mqtt_sink:MqttSink", extra="mqtt"),
    "nats": Built("nats_source:NatsSource", "nats_sink:NatsSink", extra="nats"),
    "opensearch": Built(sink="elasticsearch_sink:ElasticsearchSink", extra="elasticsearch"),
    "postgres-cdc": Built(
        "postgres_cdc_source:PostgresCdcSource", extra="postgres-cdc", aliases=("debezium-postgres",)
    ),
    "pulsar": Built("pulsar_source:PulsarSource", "pulsar_sink:PulsarSink"),
    "rabbitmq": Built("rabbitmq_source:RabbitSource", "rabbitmq_sink:RabbitSink", extra="rabbitmq"),
    "redis": Built(sink="redis_sink:RedisSink", extra="redis"),
    "redis-streams": Built("redis_streams_source:RedisStreamsSource", extra="redis"),
    "s3": Built("s3_source:S3Source", "s3_sink:S3Sink", extra="s3"),
    "websocket": Built("websocket_source:WebsocketSource", extra="websocket"),
}
"""Built-in connectors by name; the modules are in this package."""


class Definition(NamedTuple):
    """A source or sink as listed by `available`.

    Attributes:
        name: connector name.
        description: first line of the class docstring.
        class_name: connector class, as ``package.module.Class``.
        config_name: configuration class; empty if the configuration is an arbitrary object.
        kind: ``source`` or ``sink``.
        extra: same as in `Built`.
        aliases: same as in `Built`.
        unverified: same as in `Built`.
    """

    name: str
    description: str
    class_name: str
    config_name: str
    kind: str
    extra: str
    aliases: tuple[str, ...]
    unverified: str


def kind_of(connector: type[Any]) -> str:
    """Return ``source`` or ``sink``, or an empty string for other classes."""
    if issubclass(connector, Source | BatchSource):
        return "source"
    return "sink" if issubclass(connector, Sink) else ""


def find(kind: str, name: str) -> type[Connector]:
    """Return the class of a source or sink.

    Raises:
        InvalidConfig: the name is unknown. The message lists the known names.
    """
    for known, target in _targets(kind):
        if known == name and kind_of(connector := _load(target, name)) == kind:
            return connector
    other = "source" if kind == "sink" else "sink"
    hint = (
        f", but a {other} exists (`magnetar {other}s create`)"
        if any(known == name for known, _ in _targets(other))
        else ""
    )
    names = sorted({definition.name for definition in available(kind)})
    raise InvalidConfig(f"unknown {kind} {name!r}{hint}: expected one of {', '.join(names)}")


def missing_libraries(kind: str, name: str, config: Any) -> str:
    """Return an error that lists the missing libraries of a connector, or an empty string.

    Args:
        kind: ``source`` or ``sink``.
        name: name of the connector, or one of its aliases.
        config: the connector's configuration.
    """
    for known, built in BUILT_IN.items():
        if name in (known, *built.aliases) and getattr(built, kind):
            return missing(known, _variants(config))
    return ""


def _variants(config: Any) -> Iterator[str]:
    """Yield the format in a configuration, and the scheme of its path or database URL."""
    yield getattr(config, "format", "")
    yield str(getattr(config, "path", "")).partition("://")[0]
    if url := getattr(config, "jdbc_url", ""):
        yield sqlalchemy_url(url).partition(":")[0].partition("+")[0]


def available(kind: str) -> list[Definition]:
    """Return the installed sources or sinks, sorted by name; unusable connectors are logged and skipped."""
    found: dict[str, Definition] = {}
    taken: set[str] = set()
    for name, built in BUILT_IN.items():
        if target := getattr(built, kind):
            connector = _load(f"{__package__}.{target}", name)
            found[name] = _definition(name, kind, connector, built)
            taken.update((name, *built.aliases))
    for point in _brought():
        try:
            connector = _load(point, point.name)
        except InvalidConfig as error:
            _log.error("cannot use connector %s: %s", point.value, error)
            continue
        if kind_of(connector) != kind:
            continue
        if point.name in taken:
            _log.error("ignored connector %s: another %s is already named %s", point.value, kind, point.name)
            continue
        taken.add(point.name)
        found[point.name] = _definition(point.name, kind, connector, Built())
    return [found[name] for name in sorted(found)]


def _definition(name: str, kind: str, connector: type[Any], built: Built) -> Definition:
    description = (connector.__doc__ or "").strip().partition("\n")[0]
    config_name = "" if connector.config is dict else _name_of(connector.config)
    return Definition(
        name, description, _name_of(connector), config_name, kind, built.extra, built.aliases, built.unverified
    )  # fmt: skip


def _name_of(found: type[Any]) -> str:
    return f"{found.__module__}.{found.__qualname__}"


def _targets(kind: str) -> Iterator[tuple[str, str | EntryPoint]]:
    for name, built in BUILT_IN.items():
        if target := getattr(built, kind):
            yield from ((known, f"{__package__}.{target}") for known in (name, *built.aliases))
    yield from ((point.name, point) for point in _brought())


def _brought() -> Iterable[EntryPoint]:
    from importlib.metadata import entry_points  # imports zipfile and csv, which take half a megabyte per instance

    return entry_points(group=GROUP)


def _load(target: str | EntryPoint, name: str) -> type[Connector]:
    try:
        if isinstance(target, str):
            module, _, class_name = target.partition(":")
            connector = getattr(importlib.import_module(module), class_name)
        else:
            connector = target.load()
    except Exception as error:
        raise InvalidConfig(f"cannot import connector {name!r}: {type(error).__name__}: {error}") from error
    if not isinstance(connector, type) or not kind_of(connector):
        raise InvalidConfig(
            f"invalid connector {name!r}: {connector!r} is not a subclass of Source, BatchSource or Sink"
        )
    made: type[Connector] = connector
    try:
        fields_of(made.config)
    except InvalidConfig as error:
        raise InvalidConfig(f"invalid connector {name!r}: {error}") from error
    return made
