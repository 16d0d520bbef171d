"""Finding the class of a connector, and reading what it is told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...api.connector import Connector
from ...api.connector_config import read_config
from ...connectors.register import find, kind_of
from ...errors import FunctionLoadError, InvalidConfig
from ...wire.functions_pb2 import EFFECTIVELY_ONCE
from ..loading.loader import Home, find_object
from ..spec import InstanceSpec


def load_connector(spec: InstanceSpec, home: Home, kind: str) -> tuple[Connector, Any, Mapping[str, str]]:
    """Return a connector, its configuration and its secrets.

    Args:
        spec: of the instance.
        home: where the code of one that is uploaded is imported.
        kind: ``source`` or ``sink``.

    Raises:
        FunctionLoadError: there is no such connector, or it does not take what it is told.
    """
    part = spec.details.sink if kind == "sink" else spec.details.source
    secrets = json.loads(spec.details.secretsMap) if spec.details.secretsMap else {}
    try:
        if part.builtin:
            connector: Any = find(kind, part.builtin)
        else:
            module_name, _, attribute = part.className.rpartition(".")
            connector = find_object(home, module_name, attribute, f"className {part.className!r}")
            if not isinstance(connector, type) or kind_of(connector) != kind:
                raise InvalidConfig(f"{part.className} is no subclass of {kind.capitalize()}")
        config = read_config(connector.config, json.loads(part.configs) if part.configs else {}, secrets)
        made = connector()
        check_connector(made, config, is_exact=spec.details.processingGuarantees == EFFECTIVELY_ONCE)
    except InvalidConfig as error:
        raise FunctionLoadError(str(error)) from error
    return made, config, secrets


def check_connector(connector: Connector, config: Any, *, is_exact: bool) -> None:
    """Raise InvalidConfig if a connector does not take its configuration, or not with EFFECTIVELY_ONCE."""
    connector.check(config)
    if is_exact and (reason := connector.not_effectively_once(config)):
        raise InvalidConfig(f"processingGuarantees: it cannot be EFFECTIVELY_ONCE: {reason}; use ATLEAST_ONCE")
