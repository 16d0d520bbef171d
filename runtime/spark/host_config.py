"""A session's settings as text, on the way from the worker to its host."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from ...spark.session import SessionConfig


def config_to_text(config: SessionConfig) -> str:
    """Return a session's settings as text for `config_from_text`."""
    fields = asdict(config)
    fields["settings"] = dict(config.settings)
    return json.dumps(fields, default=str)


def config_from_text(text: str) -> SessionConfig:
    """Return the settings that `config_to_text` wrote."""
    fields = json.loads(text)
    fields["directory"] = Path(fields["directory"])
    fields["log_file"] = Path(fields["log_file"]) if fields["log_file"] is not None else None
    return SessionConfig(**fields)
