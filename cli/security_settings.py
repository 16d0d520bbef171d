"""What commands know of authentication and TLS, from flags, variables and ``client.yml``, laid one over the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ..security.credentials.client_security import ClientSecurity
from .failure import Failure

Values = Mapping[str, "str | bool"]
"""By names of `ClientSecurity`."""


class SecuritySetting(NamedTuple):
    """One setting, and where it may stand.

    Attributes:
        name: of `ClientSecurity`.
        flags: of the command line, as click takes them.
        variable: of the environment.
        key: of ``client.yml``; Pulsar's in its ``client.conf``.
        help: of the flag.
        is_switch: whether it is true or false.
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
        "What shows who you are: token, basic, tls, oauth2, a class of Pulsar's, module:Class.",
    ),
    SecuritySetting(
        "auth_params", ("--auth-params",), "MAGNETAR_AUTH_PARAMS", "authParams",
        "What it is told, as in Pulsar: token:…, file:///…; others see flags, not files.",
    ),
    SecuritySetting(
        "tls_trust_certs_file", ("--tls-trust-certs-file", "--tls-trust-cert-path"), "MAGNETAR_TLS_TRUST_CERTS_FILE",
        "tlsTrustCertsFilePath", "Authorities (PEM) that are trusted; else the system's.",
    ),
    SecuritySetting(
        "tls_certificate_file", ("--tls-cert-file",), "MAGNETAR_TLS_CERT_FILE", "tlsCertificateFilePath",
        "Certificate (PEM) that servers are shown.",
    ),
    SecuritySetting(
        "tls_key_file", ("--tls-key-file",), "MAGNETAR_TLS_KEY_FILE", "tlsKeyFilePath", "Its private key (PEM).",
    ),
    SecuritySetting(
        "tls_allow_insecure_connection",
        ("--tls-allow-insecure-connection/--no-tls-allow-insecure-connection", "--tls-allow-insecure"),
        "MAGNETAR_TLS_ALLOW_INSECURE_CONNECTION", "tlsAllowInsecureConnection",
        "Take any certificate; for trying.", is_switch=True,
    ),
    SecuritySetting(
        "tls_hostname_verification",
        ("--tls-enable-hostname-verification/--no-tls-enable-hostname-verification",),
        "MAGNETAR_TLS_ENABLE_HOSTNAME_VERIFICATION", "tlsEnableHostnameVerification",
        "Certificates must name the host; on by default.", is_switch=True,
    ),
)  # fmt: skip
_WORDS = {"true": True, "false": False}


def laid_over(layers: Iterable[Values]) -> ClientSecurity:
    """Return what several places say together; the first that has a setting counts.

    A plugin does not take parameters of a place further back, which are meant for the plugin there.

    Raises:
        InvalidConfig: they contradict each other.
    """
    found: dict[str, str | bool] = {}
    for layer in layers:
        has_plugin = "auth_plugin" in found
        for name, value in layer.items():
            if not (name == "auth_params" and has_plugin):
                found.setdefault(name, value)
    return ClientSecurity.from_dict(found)


def from_variables(environment: Mapping[str, str]) -> Values:
    """Return what the environment says; an empty variable says nothing.

    Raises:
        Failure: a switch is neither true nor false.
    """
    given = {one: environment.get(one.variable, "") for one in SECURITY_SETTINGS}
    return {one.name: checked(one, value, one.variable) for one, value in given.items() if value}


def checked(setting: SecuritySetting, value: object, where: str) -> str | bool:
    """Return a value of a setting, a switch as a boolean.

    Raises:
        Failure: it is of another type; the value is not shown, it may be a secret.
    """
    if not setting.is_switch:
        if not isinstance(value, str):
            raise Failure(f"{where} is no text; put it in quotes")
        return value
    word = str(value).strip().lower()
    if word not in _WORDS:
        raise Failure(f"{where} is neither true nor false")
    return _WORDS[word]
