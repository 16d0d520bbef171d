"""Preparation of `localrun` for sources and sinks."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ...config.connector_config import ConnectorConfig
from ...config.rules import with_defaults
from ...instance.examination.source import TRANSFORM, SourceQuestion, read_source
from ...runtime.local import LocalRun, unpacked
from ...wire.printable import printable
from ...worker.functions.components import SINK, SOURCE
from ...worker.functions.package_intake import source_question
from ..failure import Failure
from ..functions.functions import REMOTE_PREFIXES
from ..functions.target import DEFAULT_NAMESPACE, DEFAULT_TENANT
from ..local_run import Surroundings


def local_connector(kind: str, content: dict[str, Any], around: Surroundings) -> LocalRun:
    """Return the settings of a connector's local run.

    Args:
        kind: ``source`` or ``sink``.
        content: its config, as sent to a worker.
        around: addresses, credentials and other surroundings.

    Raises:
        MagnetarError: the config or the package is rejected, as by `create`.
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
    config = component.complete(config, None)
    if notice := component.notice(config):
        click.echo(printable(notice), err=True)
    is_installed = bool(component.built_in(config))
    code = _code_of(config, kind, is_installed=is_installed)
    state_call = ""
    if code:
        with tempfile.TemporaryDirectory(prefix="magnetar-localrun-") as directory:
            package = unpacked(Path(code), Path(directory))
            if is_installed:
                read_source(SourceQuestion(package, TRANSFORM, config.transform_function_class_name or ""))
            else:
                found = read_source(source_question(package, config, finds_state_call=True))
                config = replace(config, class_name=found.class_name)
                state_call = found.state_call
    return LocalRun(
        details=component.to_details(config), package=Path(code) if code else None, service_url=around.service_url,
        admin_url=around.admin_url, state_url=around.state_url, state_call=state_call, security=around.security,
        secrets_provider=around.secrets_provider, secrets_config=around.secrets_config,
    )  # fmt: skip


def _code_of(config: ConnectorConfig, kind: str, *, is_installed: bool) -> str:
    """Return the path of the code; empty for an installed connector without a transform function."""
    if is_installed:
        return str(config.transform_function or "") if config.transform_function_class_name else ""
    archive = str(config.archive or "")
    if not archive or archive.startswith(REMOTE_PREFIXES):
        raise Failure(f"no code specified: add --{kind}-type NAME, or --archive FILE (a local .py, .zip or .whl file)")
    return archive
