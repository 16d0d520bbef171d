"""Find a connector's class and read its configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...api.connector import BatchSource, Connector, Sink, Source, Trigger
from ...api.connector_config import read_config
from ...api.connector_secrets import secret_values
from ...config.batch_source import check_batch, parted, trigger_of
from ...connectors.register import find, kind_of
from ...connectors.triggers import BUILT_IN_TRIGGERS
from ...errors import FunctionLoadError, InvalidConfig
from ...wire.functions_pb2 import EFFECTIVELY_ONCE
from ..core import InstanceCore
from ..loading.loader import Home, find_object
from ..spec import InstanceSpec


def load_connector(core: InstanceCore, home: Home, kind: str) -> tuple[Connector, Any, Mapping[str, str]]:
    """Return a connector, its configuration and its secrets, and hide the secrets in log and status.

    Args:
        core: the instance's core.
        home: imports the code of an uploaded connector.
        kind: ``source`` or ``sink``.

    Raises:
        FunctionLoadError: the connector does not exist, or its configuration is invalid.
    """
    spec = core.spec
    part = spec.details.sink if kind == "sink" else spec.details.source
    secrets = json.loads(spec.details.secretsMap) if spec.details.secretsMap else {}
    try:
        if part.builtin:
            connector: Any = find(kind, part.builtin)
        else:
            module_name, _, attribute = part.className.rpartition(".")
            try:
                connector = find_object(home, module_name, attribute, f"className {part.className!r}")
            except ModuleNotFoundError as error:
                raise FunctionLoadError(
                    f"{part.className} imports {error.name}, which is not installed: install it where the instance"
                    " runs, or add it to the archive"
                ) from error
            if not isinstance(connector, type) or kind_of(connector) != kind:
                raise InvalidConfig(f"{part.className} is not a subclass of {kind.capitalize()}")
        configs, batch = parted(json.loads(part.configs) if part.configs else {})
        core.hiding.hide(secret_values(connector.config, configs, secrets))
        config = read_config(connector.config, configs, secrets)
        made = connector()
        check_batching(connector, batch)
        is_exact = spec.details.processingGuarantees == EFFECTIVELY_ONCE
        check_connector(made, config, is_exact=is_exact, parallelism=spec.details.parallelism)
    except InvalidConfig as error:
        raise FunctionLoadError(str(error)) from error
    return made, config, secrets


def check_batching(connector: type[Connector], batch: Mapping[str, Any] | None) -> None:
    """Raise InvalidConfig if `batchSourceConfig` is missing for a batch source, or set for another connector."""
    is_batch = issubclass(connector, BatchSource)
    if is_batch and batch is None:
        raise InvalidConfig(
            f"{connector.__name__} is a BatchSource: set batchSourceConfig, for example"
            ' {"discoveryTriggererClassName": "immediate"}'
        )
    if not is_batch and batch is not None:
        raise InvalidConfig(f"{connector.__name__} is not a BatchSource: omit batchSourceConfig")
    if batch is not None:
        check_batch(batch)
        name, given = trigger_of(batch)
        if name in BUILT_IN_TRIGGERS:
            BUILT_IN_TRIGGERS[name]().open(given)


def load_trigger(spec: InstanceSpec, home: Home) -> Trigger:
    """Return the discovery trigger of a batch source.

    Raises:
        FunctionLoadError: the trigger does not exist, or its configuration is invalid.
    """
    _, batch = parted(json.loads(spec.details.source.configs))
    name, given = trigger_of(batch or {})
    kind: Any = BUILT_IN_TRIGGERS.get(name)
    if kind is None:
        module_name, _, attribute = name.rpartition(".")
        kind = find_object(home, module_name, attribute, f"discoveryTriggererClassName {name!r}")
        if not isinstance(kind, type) or not issubclass(kind, Trigger):
            raise FunctionLoadError(f"discoveryTriggererClassName: {name} is not a subclass of Trigger")
    trigger: Trigger = kind()
    try:
        trigger.open(given)
    except InvalidConfig as error:
        raise FunctionLoadError(f"discoveryTriggererConfig: {error}") from error
    return trigger


def check_connector(connector: Connector, config: Any, *, is_exact: bool, parallelism: int = 1) -> None:
    """Validate a connector and its settings.

    Args:
        connector: connector to check.
        config: the connector's configuration.
        is_exact: whether the guarantee is EFFECTIVELY_ONCE.
        parallelism: number of instances.

    Raises:
        InvalidConfig: a method is missing, or settings are invalid or contradict each other.
    """
    if isinstance(connector, Sink):
        sink = type(connector)
        if sink.write is Sink.write and sink.write_batch is Sink.write_batch:
            raise InvalidConfig(f"{sink.__name__} has neither write nor write_batch: define one of them")
    connector.check(config)
    if parallelism > 1 and isinstance(connector, Source) and (reason := connector.not_parallel(config)):
        raise InvalidConfig(f"parallelism must be 1, not {parallelism}: {reason}")
    if is_exact and isinstance(connector, BatchSource):
        raise InvalidConfig(
            "processingGuarantees of a batch source cannot be EFFECTIVELY_ONCE, because a task is restarted if its"
            " instance dies: use ATLEAST_ONCE"
        )
    if is_exact and (reason := connector.not_effectively_once(config)):
        raise InvalidConfig(f"processingGuarantees cannot be EFFECTIVELY_ONCE: {reason}; use ATLEAST_ONCE")
