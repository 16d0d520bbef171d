"""What `localrun` of a source or a sink runs."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...config.connector_config import ConnectorConfig
from ...config.rules import with_defaults
from ...runtime.local import LocalRun, unpacked
from ...worker.functions.components import SINK, SOURCE
from ...worker.functions.connector_check import connector_class
from ..failure import Failure
from ..functions.functions import REMOTE_PREFIXES
from ..functions.target import DEFAULT_NAMESPACE, DEFAULT_TENANT


def local_connector(kind: str, content: dict[str, Any], service_url: str, admin_url: str, state_url: str) -> LocalRun:
    """Return what runs a connector here.

    Args:
        kind: ``source`` or ``sink``.
        content: its config, as it would be sent.
        service_url: of the broker.
        admin_url: of the broker's REST interface.
        state_url: of the state store; empty for none.

    Raises:
        MagnetarError: the config is refused, or the package cannot be used, as at `create`.
    """
    component = SINK if kind == "sink" else SOURCE
    sent: ConnectorConfig = component.read(content)
    config = with_defaults(
        replace(
            sent,
            tenant=sent.tenant or DEFAULT_TENANT,
            namespace=sent.namespace or DEFAULT_NAMESPACE,
            runtime_env=sent.runtime_env or "thread",
        )
    )
    component.check(config)
    if component.built_in(config):
        return LocalRun(
            details=component.to_details(config), package=None, service_url=service_url, admin_url=admin_url,
            state_url=state_url,
        )  # fmt: skip
    archive = str(config.archive or "")
    if not archive or archive.startswith(REMOTE_PREFIXES):
        raise Failure(f"no code given: add --{kind}-type NAME, or --archive FILE (a .py, .zip or .whl file here)")
    package = Path(archive)
    with tempfile.TemporaryDirectory(prefix="magnetar-localrun-") as directory:
        class_name = connector_class(unpacked(package, Path(directory)), config.class_name or "", kind)
    return LocalRun(
        details=component.to_details(replace(config, class_name=class_name)), package=package,
        service_url=service_url, admin_url=admin_url, state_url=state_url,
    )  # fmt: skip
