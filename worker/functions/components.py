"""Functions, sources and sinks: kind-specific parts of requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from ...api.connector import Connector
from ...api.connector_config import HIDDEN, read_config
from ...api.connector_secrets import hidden, with_kept
from ...config import connector_conversion as connectors
from ...config import conversion, rules
from ...config.connector_config import ConnectorConfig, SinkConfig, SourceConfig
from ...config.function_config import EFFECTIVELY_ONCE, FunctionConfig
from ...connectors.register import find, missing_libraries
from ...errors import InvalidConfig
from ...instance.connectors.loading import check_batching, check_connector
from ...wire.functions_pb2 import FunctionDetails, FunctionMetaData, FunctionStatus
from .status_json import instance_status, sink_status, source_status

Json = Mapping[str, Any]
_C = TypeVar("_C", bound=ConnectorConfig)


@dataclass(frozen=True, slots=True)
class Component:
    """A kind of component: function, source or sink.

    Attributes:
        title: name of the kind for error messages.
        type: component type in records.
        read: parses a config from a JSON object.
        check: raises InvalidConfig if a config, with defaults filled in, breaks a rule.
        complete: returns the config to store, from a checked config and, for an update, the previous config.
        notice: returns a one-line notice for the user after create or update, or an empty string.
        to_details: converts a config to a record.
        from_details: converts a record to a config.
        merge: returns the config after an update.
        to_json: returns the JSON for GET requests.
        built_in: returns the name of the installed connector that a config refers to, or an empty string if it requires
            a package.
        path: URL path segment for requests about this kind.
        status: returns the status JSON for an instance's status and its worker's id.
    """

    title: str
    type: FunctionDetails.ComponentType
    read: Callable[[Json], Any]
    check: Callable[[Any], None]
    complete: Callable[[Any, Any], Any]
    notice: Callable[[Any], str]
    to_details: Callable[[Any], FunctionDetails]
    from_details: Callable[[FunctionDetails], Any]
    merge: Callable[[Any, Any], Any]
    to_json: Callable[[FunctionMetaData], Json]
    built_in: Callable[[Any], str]
    path: str
    status: Callable[[FunctionStatus, str], dict[str, Any]]

    def clash(self, details: FunctionDetails) -> str:
        """Return the error for a name that a component of any kind already uses."""
        reason = f"{self.title} {details.name} already exists"
        there = component_of(details)
        if there is self:
            return reason
        return (
            f"{reason}: a {there.title.lower()} already has this name, and names must be unique across functions,"
            " sources and sinks; choose another name"
        )

    def has(self, metadata: FunctionMetaData | None) -> bool:
        """Return whether a record is of this kind."""
        return (
            metadata is not None and (metadata.functionDetails.componentType or FunctionDetails.FUNCTION) == self.type
        )


def _check_source(config: SourceConfig) -> None:
    connectors.check_source(config)
    _check_configs(config, "source")
    if name := connectors.built_in(config):
        check_batching(find("source", name), config.batch_source_config)


def _check_sink(config: SinkConfig) -> None:
    connectors.check_sink(config)
    _check_configs(config, "sink")


def _check_configs(config: ConnectorConfig, kind: str) -> None:
    """Check the options of an installed connector; uploaded connectors report errors in their status."""
    _with_secrets_kept(config, {}, {})
    if name := connectors.built_in(config):
        try:
            connector = find(kind, name)()
        except InvalidConfig as exc:
            raise InvalidConfig(f"Built-in {kind} is not available: {exc}") from exc
        class_name = config.class_name or ""
        own = f"{type(connector).__module__}.{type(connector).__qualname__}"
        if class_name and class_name != own and not class_name.startswith("org.apache.pulsar."):
            raise InvalidConfig(f"className {class_name} is not the class of the installed {kind} {name}: omit it")
        is_exact = config.processing_guarantees == EFFECTIVELY_ONCE
        given = read_config(connector.config, config.configs or {}, config.secrets)
        check_connector(connector, given, is_exact=is_exact, parallelism=config.parallelism or 1)
        if reason := missing_libraries(kind, name, given):
            raise InvalidConfig(reason)


def _complete(config: ConnectorConfig, before: ConnectorConfig | None, *, kind: str) -> ConnectorConfig:
    """Return a connector's config with the defaults that are stored at creation.

    Updates of older records, which do not contain these defaults, keep the earlier defaults.
    """
    name = connectors.built_in(config)
    if not name:
        return config
    connector, given = _installed(config, kind, name)
    missing = connector.stored_defaults(given)
    if before is not None and connectors.built_in(before) == name:
        missing = {key: value for key, value in missing.items() if key in (before.configs or {})}
    return replace(config, configs={**(config.configs or {}), **missing}) if missing else config


def _notice(config: ConnectorConfig, *, kind: str) -> str:
    """Return an installed connector's notice about a stored config."""
    name = connectors.built_in(config)
    if not name:
        return ""
    connector, given = _installed(config, kind, name)
    return connector.notice(given)


def _installed(config: ConnectorConfig, kind: str, name: str) -> tuple[Connector, Any]:
    """Return an installed connector and its parsed configuration."""
    connector = find(kind, name)()
    return connector, read_config(connector.config, config.configs or {}, config.secrets)


def _with_secrets_kept(sent: _C, configs: Json, secrets: Json) -> _C:
    """Return a config with hidden values replaced with the previous values; raise if there are none."""
    return replace(
        sent,
        configs=None if sent.configs is None else with_kept(sent.configs, configs, "configs"),
        secrets=None if sent.secrets is None else with_kept(sent.secrets, secrets, "secrets"),
    )


def _merge(existing: Any, sent: Any) -> Any:
    return connectors.merge(existing, _with_secrets_kept(sent, existing.configs or {}, existing.secrets or {}))


def _shown(metadata: FunctionMetaData, kind: str) -> Json:
    """Return a connector's config without its secrets."""
    details = metadata.functionDetails
    answer = connectors.to_json(details)
    name = (details.sink if kind == "sink" else details.source).builtin
    try:
        config = find(kind, name).config if name else None
    except InvalidConfig:  # no longer installed here
        config = None
    if answer.get("configs"):
        answer["configs"] = hidden(config, answer["configs"])
    if answer.get("secrets"):
        answer["secrets"] = dict.fromkeys(answer["secrets"], HIDDEN)
    return answer


_PLACES = ("env", "file", "path", "key")
"""Keys for the location of a secret, whose values are shown."""


def _check_function(config: FunctionConfig) -> None:
    with_kept(config.secrets or {}, {}, "secrets")
    rules.check(config)


def _merge_function(existing: FunctionConfig, sent: FunctionConfig) -> FunctionConfig:
    if sent.secrets is not None:
        sent = replace(sent, secrets=with_kept(sent.secrets, existing.secrets or {}, "secrets"))
    return conversion.merge(existing, sent)


def _shown_function(metadata: FunctionMetaData) -> Json:
    """Return a function's config, hiding all values that may be secrets except for the locations of secrets."""
    answer = conversion.to_json(metadata)
    if answer.get("secrets"):
        answer["secrets"] = {name: _place(secret) for name, secret in answer["secrets"].items()}
    return answer


def _place(secret: Any) -> Any:
    if not isinstance(secret, dict):
        return HIDDEN
    return {name: value if name in _PLACES else HIDDEN for name, value in secret.items()}


FUNCTION = Component(
    "Function", FunctionDetails.FUNCTION, conversion.read_function_config, _check_function,
    lambda config, before: config, lambda config: "", conversion.to_details,
    conversion.from_details, _merge_function, _shown_function, lambda config: "",
    "/admin/v3/functions", instance_status,
)  # fmt: skip
SOURCE = Component(
    "Source", FunctionDetails.SOURCE, connectors.read_source_config, _check_source,
    partial(_complete, kind="source"), partial(_notice, kind="source"), connectors.to_details,
    connectors.from_details, _merge, partial(_shown, kind="source"), connectors.built_in,
    "/admin/v3/sources", source_status,
)  # fmt: skip
SINK = Component(
    "Sink", FunctionDetails.SINK, connectors.read_sink_config, _check_sink,
    partial(_complete, kind="sink"), partial(_notice, kind="sink"), connectors.to_details,
    connectors.from_details, _merge, partial(_shown, kind="sink"), connectors.built_in,
    "/admin/v3/sinks", sink_status,
)  # fmt: skip


def component_of(details: FunctionDetails) -> Component:
    """Return the kind of a record."""
    return {FunctionDetails.SOURCE: SOURCE, FunctionDetails.SINK: SINK}.get(details.componentType, FUNCTION)
