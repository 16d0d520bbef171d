"""How a client shows who it is and checks the server, as plain values that go from process to process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ...errors import InvalidConfig

TLS_URLS = ("pulsar+ssl:", "https:")
"""How the URLs begin of brokers that are reached with TLS."""


@dataclass(frozen=True, kw_only=True)
class ClientSecurity:
    """How a client shows who it is, and how it checks the server. Secrets are not in its ``repr``.

    Attributes:
        auth_plugin: what shows who the client is: ``token``, ``basic``, ``tls``, ``oauth2``, one of Pulsar's classes,
            or ``module:Class`` of your own; empty for nothing.
        auth_params: what the plugin is told; `plugins.authentication_of` has the forms.
        tls_trust_certs_file: certificates (PEM) of the authorities that are trusted; empty for those of the system.
        tls_certificate_file: certificate of the client (PEM), where the server asks for one.
        tls_key_file: its private key (PEM).
        tls_allow_insecure_connection: take any certificate of the server; for trying.
        tls_hostname_verification: the server's certificate must name the host that was asked for. On, unlike in
            Pulsar's clients: without it, whoever has any certificate of the authority can pass for the server.
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
                raise InvalidConfig(f"{one.name} is of type {type(value).__name__}; give a {kind.__name__}")
            if isinstance(value, str) and "\0" in value:
                raise InvalidConfig(f"{one.name} has a NUL character")
        if self.auth_params and not self.auth_plugin:
            raise InvalidConfig("auth_params needs auth_plugin, which reads them; give for example auth_plugin='token'")
        if bool(self.tls_certificate_file) != bool(self.tls_key_file):
            given, missing = ("tls_certificate_file", "tls_key_file") if self.tls_certificate_file else (
                "tls_key_file", "tls_certificate_file")  # fmt: skip
            raise InvalidConfig(f"{given} needs {missing}, too")

    @property
    def tls_settings(self) -> tuple[str, ...]:
        """The names of the settings given that mean something on TLS only."""
        return tuple(
            one.name for one in fields(self) if one.name.startswith("tls_") and getattr(self, one.name) != one.default
        )

    def for_urls(self, *urls: str) -> ClientSecurity:
        """Return the same, without settings of TLS if no URL of a broker is one of TLS."""
        if any(url.startswith(TLS_URLS) for url in urls):
            return self
        return ClientSecurity(auth_plugin=self.auth_plugin, auth_params=self.auth_params)

    def to_dict(self) -> dict[str, Any]:
        """Return what differs from the defaults, by the names of the attributes, secrets included; fits JSON."""
        return {one.name: value for one in fields(self) if (value := asdict(self)[one.name]) != one.default}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ClientSecurity:
        """Return what `to_dict` wrote.

        Raises:
            InvalidConfig: a name is unknown or a value is of another type.
        """
        known = {one.name for one in fields(cls)}
        for name in values:
            if name not in known:
                raise InvalidConfig(
                    f"unknown setting {name!r} of a client's security; known: {', '.join(sorted(known))}"
                )
        return cls(**values)
