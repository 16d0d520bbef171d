"""Credential and TLS options of the data source.

Design: the driver uses these options for planning, and the tasks use them wherever they run. Files must exist on each
of these machines, and are read for each connection, so that renewed files take effect.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ...errors import CredentialsUnavailable, InvalidConfig
from ...security.client_credentials import ClientCredentials
from ...security.credentials.client_security import ClientSecurity
from ...security.credentials.setting_names import named

_NAMES = {
    "auth_plugin": "auth.plugin",
    "auth_params": "auth.params",
    "tls_trust_certs_file": "tls.trust.certs.file",
    "tls_certificate_file": "tls.certificate.file",
    "tls_key_file": "tls.key.file",
    "tls_allow_insecure_connection": "tls.allow.insecure.connection",
    "tls_hostname_verification": "tls.hostname.verification",
}
"""Option name for each client setting."""
SECURITY_OPTIONS = tuple(_NAMES.values())


def security_options(given: Mapping[str, str]) -> ClientSecurity:
    """Return the credential and TLS settings.

    Args:
        given: all options by their names in lower case, including ``service.url``.

    Raises:
        InvalidConfig: an option is invalid, requires another option, or has no effect with the given addresses.
    """
    switches = {setting for setting, default in vars(ClientSecurity()).items() if isinstance(default, bool)}
    values = {
        setting: _switch(option, text) if setting in switches else text
        for setting, option in _NAMES.items()
        if (text := given.get(option)) is not None
    }
    with named(_NAMES):
        security = ClientSecurity(**values)  # type: ignore[arg-type]  # switches are bool, all others str
        ClientCredentials(security).check_url(given.get("service.url"), given.get("admin.url"))
    return security


def as_options(security: ClientSecurity, *urls: str) -> dict[str, str]:
    """Return the options for settings, without the TLS options if no address uses TLS."""
    has_tls = any(url.startswith(("pulsar+ssl:", "https:")) for url in urls)
    return {
        _NAMES[setting]: str(value).lower() if isinstance(value, bool) else value
        for setting, value in security.to_dict().items()
        if has_tls or not setting.startswith("tls_")
    }


def _switch(option: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidConfig(f"invalid {option} {text!r}: expected true or false")
    return text.lower() == "true"


@contextmanager
def told_where() -> Iterator[None]:
    """Add the host name to errors about missing credentials.

    Raises:
        CredentialsUnavailable: credentials are missing; the message contains the host name.
    """
    try:
        yield
    except CredentialsUnavailable as error:
        raise CredentialsUnavailable(
            f"on {socket.gethostname()}: {error}; credential and certificate files must exist on each machine that"
            " runs the driver or a task"
        ) from error
