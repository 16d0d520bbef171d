"""Functions, sources and sinks: what requests about each kind of component have of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...api.connector_config import read_config
from ...config import connector_conversion as connectors
from ...config import conversion, rules
from ...config.connector_config import ConnectorConfig, SinkConfig, SourceConfig
from ...config.function_config import EFFECTIVELY_ONCE
from ...connectors.register import find
from ...errors import InvalidConfig
from ...instance.connectors.loading import check_connector
from ...wire.functions_pb2 import FunctionDetails, FunctionMetaData, FunctionStatus
from .status_json import instance_status, sink_status, source_status

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Component:
    """One kind of component.

    Attributes:
        title: what error messages call it.
        type: of its records.
        read: the config that a JSON object describes.
        check: raises InvalidConfig for a config with defaults that breaks a rule.
        to_details: the record of a config.
        from_details: the config of a record.
        merge: the config after an update.
        to_json: what GET answers.
        built_in: the name of the installed connector that a config means; empty if it needs a package.
        path: of requests about them.
        status: the JSON of an instance's status and its worker's id.
    """

    title: str
    type: FunctionDetails.ComponentType
    read: Callable[[Json], Any]
    check: Callable[[Any], None]
    to_details: Callable[[Any], FunctionDetails]
    from_details: Callable[[FunctionDetails], Any]
    merge: Callable[[Any, Any], Any]
    to_json: Callable[[FunctionMetaData], Json]
    built_in: Callable[[Any], str]
    path: str
    status: Callable[[FunctionStatus, str], dict[str, Any]]

    def has(self, metadata: FunctionMetaData | None) -> bool:
        """Return whether a record is one of this kind."""
        return (
            metadata is not None and (metadata.functionDetails.componentType or FunctionDetails.FUNCTION) == self.type
        )


def _check_source(config: SourceConfig) -> None:
    connectors.check_source(config)
    _check_configs(config, "source")


def _check_sink(config: SinkConfig) -> None:
    connectors.check_sink(config)
    _check_configs(config, "sink")


def _check_configs(config: ConnectorConfig, kind: str) -> None:
    """Check what an installed connector is told; one that is uploaded says it in its status."""
    if name := connectors.built_in(config):
        secrets = {key: str(value) for key, value in (config.secrets or {}).items()}
        try:
            connector = find(kind, name)()
        except InvalidConfig as exc:
            raise InvalidConfig(f"Built-in {kind} is not available: {exc}") from exc
        is_exact = config.processing_guarantees == EFFECTIVELY_ONCE
        check_connector(connector, read_config(connector.config, config.configs or {}, secrets), is_exact=is_exact)


def _shown(metadata: FunctionMetaData) -> Json:
    return connectors.to_json(metadata.functionDetails)


FUNCTION = Component(
    "Function", FunctionDetails.FUNCTION, conversion.read_function_config, rules.check, conversion.to_details,
    conversion.from_details, conversion.merge, conversion.to_json, lambda config: "",
    "/admin/v3/functions", instance_status,
)  # fmt: skip
SOURCE = Component(
    "Source", FunctionDetails.SOURCE, connectors.read_source_config, _check_source, connectors.to_details,
    connectors.from_details, connectors.merge, _shown, connectors.built_in, "/admin/v3/sources", source_status,
)  # fmt: skip
SINK = Component(
    "Sink", FunctionDetails.SINK, connectors.read_sink_config, _check_sink, connectors.to_details,
    connectors.from_details, connectors.merge, _shown, connectors.built_in, "/admin/v3/sinks", sink_status,
)  # fmt: skip


def component_of(details: FunctionDetails) -> Component:
    """Return which kind a record is of."""
    return {FunctionDetails.SOURCE: SOURCE, FunctionDetails.SINK: SINK}.get(details.componentType, FUNCTION)
