"""Addresses of the cluster, from global flags, then the environment, then ``client.yml``, then this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ..wire.printable import one_line
from .failure import Failure, nearest

DEFAULT_ADMIN_URL = "http://127.0.0.1:8080"
DEFAULT_SERVICE_URL = "pulsar://127.0.0.1:6650"
CLIENT_FILE_KEYS = {"webServiceUrl": "admin_url", "brokerServiceUrl": "service_url"}
"""Pulsar's names in its client.conf, which ``client.yml`` keeps."""


@dataclass(frozen=True)
class Settings:
    """Settings of all client commands.

    Attributes:
        admin_url: base of the REST interface, without a slash at its end.
        service_url: address of the binary protocol.
        output: ``json`` for JSON whatever the terminal; None for tables on a terminal.
    """

    admin_url: str = DEFAULT_ADMIN_URL
    service_url: str = DEFAULT_SERVICE_URL
    output: str | None = None


def find_settings(admin_url: str | None, service_url: str | None, output: str | None) -> Settings:
    """Return the settings of a call; each given value wins over the environment, that over the file.

    Raises:
        Failure: the client file is unreadable or holds a key that we do not know.
    """
    in_file: dict[str, str] = {}
    if admin_url is None or service_url is None:
        in_file = _read_client_file(os.environ)
    admin_url = admin_url or os.environ.get("MAGNETAR_ADMIN_URL") or in_file.get("admin_url") or DEFAULT_ADMIN_URL
    service_url = (
        service_url or os.environ.get("MAGNETAR_SERVICE_URL") or in_file.get("service_url") or DEFAULT_SERVICE_URL
    )
    return Settings(checked_admin_url(admin_url), checked_service_url(service_url), output)


def checked_admin_url(url: str) -> str:
    """Return a REST address without a slash at its end.

    Raises:
        Failure: it is of no protocol that is supported.
    """
    if not url.startswith(("http://", "https://")):
        raise Failure(f"admin URL {url!r} does not begin with http:// or https://")
    return url.rstrip("/")


def checked_service_url(url: str) -> str:
    """Return a broker's address without a slash at its end.

    Raises:
        Failure: it is of no protocol that is supported.
    """
    if not url.startswith("pulsar://"):
        raise Failure(f"service URL {url!r} does not begin with pulsar://, the only protocol supported so far")
    return url.rstrip("/")


def current(ctx: click.Context) -> Settings:
    """Return the settings that the root group found for this call."""
    settings = ctx.find_object(Settings)
    assert settings is not None
    return settings


def read_yaml(path: str, what: str) -> Any:
    """Return the content of a YAML file, which is called ``what`` in errors.

    Raises:
        Failure: no such file, or no YAML.
    """
    import yaml

    try:
        return yaml.safe_load(Path(path).read_text())
    except OSError as exc:
        raise Failure(f"{what} {path} cannot be read: {exc.strerror}") from exc
    except (yaml.YAMLError, UnicodeDecodeError) as exc:
        raise Failure(f"{what} {path} is no YAML: {one_line(str(exc))}") from exc


def _read_client_file(environment: os._Environ[str]) -> dict[str, str]:
    named = environment.get("MAGNETAR_CLIENT_CONF")
    path = Path(named) if named else Path("client.yml")
    if not path.exists():
        if named:
            raise Failure(f"MAGNETAR_CLIENT_CONF names {path}, which does not exist; correct or unset it")
        return {}
    import yaml

    try:
        content = yaml.safe_load(path.read_text()) or {}
    except (OSError, yaml.YAMLError) as exc:
        raise Failure(f"{path} cannot be read: {exc}") from exc
    if not isinstance(content, dict):
        raise Failure(f"{path} must hold `key: value` lines; known keys: {', '.join(CLIENT_FILE_KEYS)}")
    for key in content:
        if key not in CLIENT_FILE_KEYS:
            known = ", ".join(CLIENT_FILE_KEYS)
            raise Failure(f"{path}: unknown key {key!r}{nearest(str(key), CLIENT_FILE_KEYS)} (known keys: {known})")
    return {CLIENT_FILE_KEYS[key]: str(value) for key, value in content.items()}
