"""Authentication and TLS settings of commands, merged from flags, environment variables and ``client.yml``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ..security.credentials.client_security import ClientSecurity
from .failure import Failure

Values = Mapping[str, "str | bool"]
"""Values by attribute names of `ClientSecurity`."""


class SecuritySetting(NamedTuple):
    """A setting and its sources.

    Attributes:
        name: attribute name in `ClientSecurity`.
        flags: command line flags, in click's format.
        variable: environment variable.
        key: key in ``client.yml``, the same as in Pulsar's ``client.conf``.
        help: help of the flag.
        is_switch: whether it is a boolean.
    """

    name: str
    flags: tuple[str, ...]
    variable: str
    key: str
    help: str
    is_switch: bool = False


SECURITY_SETTINGS = (
    SecuritySetting(
        "auth_plugin", ("--auth-plugin",), "MAGNETAR_AUTH_PLUGIN", "authPlugin",
        "Authentication plugin: token, basic, tls, oauth2, a class of Pulsar's, or module:Class.",
    ),
    SecuritySetting(
        "auth_params", ("--auth-params",), "MAGNETAR_AUTH_PARAMS", "authParams",
        "Parameters of the plugin, as in Pulsar: token:… or file:///…; other users can see flags, but not files.",
    ),
    SecuritySetting(
        "tls_trust_certs_file", ("--tls-trust-certs-file", "--tls-trust-cert-path"), "MAGNETAR_TLS_TRUST_CERTS_FILE",
        "tlsTrustCertsFilePath", "Trusted certificate authorities, a PEM file (default: the system's).",
    ),
    SecuritySetting(
        "tls_certificate_file", ("--tls-cert-file",), "MAGNETAR_TLS_CERT_FILE", "tlsCertificateFilePath",
        "Client certificate, a PEM file.",
    ),
    SecuritySetting(
        "tls_key_file", ("--tls-key-file",), "MAGNETAR_TLS_KEY_FILE", "tlsKeyFilePath", "Its private key, a PEM file.",
    ),
    SecuritySetting(
        "tls_allow_insecure_connection",
        ("--tls-allow-insecure-connection/--no-tls-allow-insecure-connection", "--tls-allow-insecure"),
        "MAGNETAR_TLS_ALLOW_INSECURE_CONNECTION", "tlsAllowInsecureConnection",
        "Accept any certificate; for testing only.", is_switch=True,
    ),
    SecuritySetting(
        "tls_hostname_verification",
        ("--tls-enable-hostname-verification/--no-tls-enable-hostname-verification",),
        "MAGNETAR_TLS_ENABLE_HOSTNAME_VERIFICATION", "tlsEnableHostnameVerification",
        "Verify host names in certificates; on by default.", is_switch=True,
    ),
)  # fmt: skip
_WORDS = {"true": True, "false": False}


def laid_over(layers: Iterable[Values]) -> ClientSecurity:
    """Merge settings from several sources; the first source that contains a setting wins.

    A plugin is not combined with parameters from a later source, which belong to the plugin there.

    Raises:
        InvalidConfig: the settings contradict each other.
    """
    found: dict[str, str | bool] = {}
    for layer in layers:
        has_plugin = "auth_plugin" in found
        for name, value in layer.items():
            if not (name == "auth_params" and has_plugin):
                found.setdefault(name, value)
    return ClientSecurity.from_dict(found)


def from_variables(environment: Mapping[str, str]) -> Values:
    """Return the settings in the environment; empty variables are ignored.

    Raises:
        Failure: a boolean is neither true nor false.
    """
    given = {one: environment.get(one.variable, "") for one in SECURITY_SETTINGS}
    return {one.name: checked(one, value, one.variable) for one, value in given.items() if value}


def checked(setting: SecuritySetting, value: object, where: str) -> str | bool:
    """Return the value of a setting; booleans are converted.

    Raises:
        Failure: the value has the wrong type; the message does not show it, as it may be a secret.
    """
    if not setting.is_switch:
        if not isinstance(value, str):
            raise Failure(f"{where} is not a string: quote it")
        return value
    word = str(value).strip().lower()
    if word not in _WORDS:
        raise Failure(f"{where} must be true or false")
    return _WORDS[word]
