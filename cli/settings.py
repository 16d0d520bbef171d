"""Addresses and credentials from global flags, the environment, ``client.yml`` and this machine, in this order."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..security.credentials.client_security import TLS_URLS, ClientSecurity
from ..security.local_token import local_token_of
from ..wire.printable import one_line
from .client_file import ClientFile, read_client_file
from .failure import Failure
from .security_settings import Values, from_variables, laid_over

if TYPE_CHECKING:
    from ..client.config import ClientConfig
    from ..security.client_credentials import ClientCredentials

DEFAULT_ADMIN_URL = "http://127.0.0.1:8080"
DEFAULT_SERVICE_URL = "pulsar://127.0.0.1:6650"
_FLAG_LAYERS = 2
"""Number of `Settings.security_layers` that come from flags."""


@dataclass(frozen=True)
class Settings:
    """Settings shared by all client commands.

    Attributes:
        admin_url: base URL of the REST interface, without a trailing slash.
        service_url: address of the binary protocol.
        output: ``json`` for JSON even on a terminal; None for tables on a terminal.
        security_layers: authentication and TLS settings from flags after the command, flags before it, the environment
            and the file; the last layer is the token of a standalone on this machine.
    """

    admin_url: str = DEFAULT_ADMIN_URL
    service_url: str = DEFAULT_SERVICE_URL
    output: str | None = None
    security_layers: tuple[Values, ...] = ()

    @cached_property
    def security(self) -> ClientSecurity:
        """The merged authentication and TLS settings.

        Raises:
            InvalidConfig: the settings contradict each other.
        """
        found = laid_over(self.security_layers)
        has_tls = any(url.startswith(TLS_URLS) for url in (self.admin_url, self.service_url))
        by_flag = any("tls_hostname_verification" in layer for layer in self.security_layers[:_FLAG_LAYERS])
        if has_tls or by_flag:
            return found
        # Pulsar's client.conf disables this for all addresses; it is irrelevant without TLS, and must not raise an
        # error.
        return replace(found, tls_hostname_verification=True)

    @cached_property
    def credentials(self) -> ClientCredentials:
        """The credentials, created once per call so that a token is not fetched twice.

        Raises:
            InvalidConfig: the plugin is unknown, or TLS is configured although no address uses it.
        """
        from ..security.client_credentials import ClientCredentials

        credentials = ClientCredentials(self.security)
        credentials.check_url(self.admin_url, self.service_url)
        return credentials

    def client_config(self, **others: Any) -> ClientConfig:
        """Return the configuration of a broker client, with additional settings.

        Raises:
            InvalidConfig: the plugin is unknown, or TLS is configured although no address uses it.
        """
        from ..client.config import ClientConfig

        tls = replace(self.security, auth_plugin="", auth_params="").to_dict()
        return ClientConfig(authentication=self.credentials.authentication, **tls, **others)

    def with_security(self, name: str, value: str | bool) -> Settings:
        """Return a copy with an authentication or TLS setting given after the command."""
        first, *others = self.security_layers or ({},)
        return replace(self, security_layers=({**first, name: value}, *others))


def find_settings(
    admin_url: str | None, service_url: str | None, output: str | None, security: Values | None = None
) -> Settings:
    """Return the settings of a command; flags override the environment, which overrides the file.

    Raises:
        Failure: the client file is unreadable or contains an unknown key.
    """
    found: ClientFile = read_client_file(os.environ)
    in_file = found.addresses
    admin_url = admin_url or os.environ.get("MAGNETAR_ADMIN_URL") or in_file.get("admin_url") or DEFAULT_ADMIN_URL
    service_url = (
        service_url or os.environ.get("MAGNETAR_SERVICE_URL") or in_file.get("service_url") or DEFAULT_SERVICE_URL
    )
    admin_url, service_url = checked_admin_url(admin_url), checked_service_url(service_url)
    data_dir = Path(os.environ.get("MAGNETAR_DATA_DIR", "data"))
    local: Values = dict(local_token_of(data_dir, (admin_url, service_url)))
    layers: tuple[Values, ...] = ({}, security or {}, from_variables(os.environ), found.security, local)
    return Settings(admin_url, service_url, output, layers)


def checked_admin_url(url: str) -> str:
    """Check a REST address, and return it without a trailing slash.

    Raises:
        Failure: the protocol is not supported.
    """
    if not url.startswith(("http://", "https://")):
        raise Failure(f"invalid admin URL {url!r}: expected http:// or https://")
    return url.rstrip("/")


def checked_service_url(url: str) -> str:
    """Check a broker address, and return it without a trailing slash.

    Raises:
        Failure: the protocol is not supported.
    """
    if not url.startswith(("pulsar://", "pulsar+ssl://")):
        raise Failure(f"invalid service URL {url!r}: expected pulsar:// or pulsar+ssl://")
    return url.rstrip("/")


def current(ctx: click.Context) -> Settings:
    """Return the settings determined by the root group for this call."""
    settings = ctx.find_object(Settings)
    assert settings is not None
    return settings


def read_yaml(path: str, what: str) -> Any:
    """Return the content of a YAML file; ``what`` describes it in errors.

    Raises:
        Failure: the file is missing, or is not valid YAML.
    """
    import yaml

    try:
        return yaml.safe_load(Path(path).read_text())
    except OSError as exc:
        raise Failure(f"{what} {path} cannot be read: {exc.strerror}") from exc
    except (yaml.YAMLError, UnicodeDecodeError) as exc:
        raise Failure(f"{what} {path} is not valid YAML: {one_line(str(exc))}") from exc
