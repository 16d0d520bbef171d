"""A client's security settings, as plain values that can be passed between processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ...errors import InvalidConfig

TLS_URLS = ("pulsar+ssl:", "https:")
"""Prefixes of TLS URLs."""


@dataclass(frozen=True, kw_only=True)
class ClientSecurity:
    """A client's authentication and TLS settings. Their ``repr`` contains no secrets.

    Attributes:
        auth_plugin: authentication plugin: ``token``, ``basic``, ``tls``, ``oauth2``, one of Pulsar's classes, or a
            custom ``module:Class``; empty for none.
        auth_params: parameters of the plugin; see `plugins.authentication_of`.
        tls_trust_certs_file: certificates (PEM) of the trusted authorities; empty for the system's.
        tls_certificate_file: the client's certificate (PEM), for servers that request one.
        tls_key_file: private key of the client's certificate (PEM).
        tls_allow_insecure_connection: accept any server certificate; for testing.
        tls_hostname_verification: require that the server's certificate matches the host name. On by default, unlike in
            Pulsar's clients: without it, the owner of any certificate of the authority can impersonate the server.
    """

    auth_plugin: str = ""
    auth_params: str = field(default="", repr=False)
    tls_trust_certs_file: str = ""
    tls_certificate_file: str = ""
    tls_key_file: str = ""
    tls_allow_insecure_connection: bool = False
    tls_hostname_verification: bool = True

    def __post_init__(self) -> None:
        for one in fields(self):
            value, kind = getattr(self, one.name), type(one.default)
            if type(value) is not kind:
                raise InvalidConfig(f"invalid {one.name}: expected {kind.__name__}, got {type(value).__name__}")
            if isinstance(value, str) and "\0" in value:
                raise InvalidConfig(f"invalid {one.name}: must not contain a NUL character")
        if self.auth_params and not self.auth_plugin:
            raise InvalidConfig("auth_params requires auth_plugin, for example auth_plugin='token'")
        if bool(self.tls_certificate_file) != bool(self.tls_key_file):
            given, missing = ("tls_certificate_file", "tls_key_file") if self.tls_certificate_file else (
                "tls_key_file", "tls_certificate_file")  # fmt: skip
            raise InvalidConfig(f"{given} requires {missing}")

    @property
    def tls_settings(self) -> tuple[str, ...]:
        """The names of the TLS settings that differ from the defaults."""
        return tuple(
            one.name for one in fields(self) if one.name.startswith("tls_") and getattr(self, one.name) != one.default
        )

    def for_urls(self, *urls: str) -> ClientSecurity:
        """Return these settings, without the TLS settings if none of the URLs uses TLS."""
        if any(url.startswith(TLS_URLS) for url in urls):
            return self
        return ClientSecurity(auth_plugin=self.auth_plugin, auth_params=self.auth_params)

    def to_dict(self) -> dict[str, Any]:
        """Return the non-default values by attribute name, including secrets; serialisable as JSON."""
        return {one.name: value for one in fields(self) if (value := asdict(self)[one.name]) != one.default}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ClientSecurity:
        """Return the settings from the result of `to_dict`.

        Raises:
            InvalidConfig: a name is unknown, or a value has the wrong type.
        """
        known = {one.name for one in fields(cls)}
        for name in values:
            if name not in known:
                raise InvalidConfig(
                    f"unknown client security setting {name!r}: expected one of {', '.join(sorted(known))}"
                )
        return cls(**values)
