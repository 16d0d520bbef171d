"""Libraries that a connector needs and that an extra of Magnetar brings."""

from __future__ import annotations

import importlib
from typing import Any

from ..errors import InvalidConfig

_PACKAGES = {
    "confluent_kafka": "confluent-kafka",
    "nats": "nats-py",
    "opensearchpy": "opensearch-py",
    "paho": "paho-mqtt",
    "pymysql": "PyMySQL",
    "sqlalchemy": "SQLAlchemy",
}
"""Names of packages by that of their module, where the two differ."""


def need(extra: str, module: str, connector: str = "") -> Any:
    """Return a module, imported; to be called in a connector's ``open``.

    Args:
        extra: what brings it, as in ``magnetar[kafka]``.
        module: its name, with dots.
        connector: the connector's name, where it is not that of the extra.

    Raises:
        InvalidConfig: it is not installed, or cannot be imported; the message says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        top = module.partition(".")[0]
        is_absent = isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")
        cause = "" if is_absent else f" ({error})"
        raise InvalidConfig(
            f"the connector {connector or extra} needs {_PACKAGES.get(top, top)}{cause}:"
            f" pip install 'magnetar[{extra}]'"
        ) from error
