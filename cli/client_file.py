"""The client settings file with addresses and credentials: ``client.yml``, or Pulsar's ``client.conf``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click

from .failure import Failure, nearest
from .properties_file import read_properties
from .security_settings import SECURITY_SETTINGS, Values, checked

FILE_VARIABLE = "MAGNETAR_CLIENT_CONF"
DEFAULT_FILE = "client.yml"
ADDRESS_KEYS = {"webServiceUrl": "admin_url", "brokerServiceUrl": "service_url"}
"""Address keys, with the names from Pulsar's client.conf."""
_SECURITY_KEYS = {one.key: one for one in SECURITY_SETTINGS}
_KEY_STORES = "useKeyStoreTls"
_OF_KEY_STORES = (
    "tlsTrustStoreType", "tlsTrustStorePath", "tlsTrustStorePassword", "tlsKeyStoreType", "tlsKeyStorePath",
    "tlsKeyStorePassword",
)  # fmt: skip
"""Keys that Pulsar uses only for key stores, which are not supported."""
_NO_EFFECT = {"webserviceTlsProvider": "OpenSSL provides TLS"}
_PULSAR_DEFAULTS = {"sslFactoryPlugin": "org.apache.pulsar.common.util.DefaultPulsarSslFactory"}
_NOT_SUPPORTED = {
    "sslFactoryPlugin": "Java classes cannot be loaded, and OpenSSL provides TLS",
    "sslFactoryPluginParams": "Java classes cannot be loaded, and OpenSSL provides TLS",
    "proxyServiceUrl": "SNI routing proxies are not supported",
    "proxyProtocol": "SNI routing proxies are not supported",
}
KNOWN_KEYS = (*ADDRESS_KEYS, *_SECURITY_KEYS)


class ClientFile(NamedTuple):
    """Content of the client settings file.

    Attributes:
        addresses: addresses, by attribute names of `Settings`.
        security: security settings, by attribute names of `ClientSecurity`.
    """

    addresses: Mapping[str, str]
    security: Values


def read_client_file(environment: Mapping[str, str]) -> ClientFile:
    """Read the file named by an environment variable, or ``client.yml`` in the working directory.

    Raises:
        Failure: the file is missing or unreadable, or contains an unknown or unsupported key; values that may be
            secrets are not shown.
    """
    named = environment.get(FILE_VARIABLE)
    path = Path(named) if named else Path(DEFAULT_FILE)
    if not path.exists():
        if named:
            raise Failure(f"{FILE_VARIABLE} is set to {path}, which does not exist: correct or unset it")
        return ClientFile({}, {})
    addresses: dict[str, str] = {}
    security: dict[str, str | bool] = {}
    content = _content(path)
    for key, value in content.items():
        if key in ADDRESS_KEYS and value not in (None, ""):
            addresses[ADDRESS_KEYS[key]] = str(value)
        elif key in _SECURITY_KEYS and value not in (None, ""):
            setting = _SECURITY_KEYS[key]
            security[setting.name] = checked(setting, value, f"{path}: {key}")
        elif key not in KNOWN_KEYS:
            _refuse_other(path, str(key), value)
    return ClientFile(addresses, security)


def _content(path: Path) -> dict[Any, Any]:
    """Return the keys and values of a Java properties file, recognised by its name, or a YAML file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is not valid UTF-8"
        raise Failure(f"{path} cannot be read: {reason}") from exc
    if path.suffix in (".conf", ".properties"):
        try:
            return dict(read_properties(text))
        except ValueError as exc:
            raise Failure(f"{path} cannot be read: \\u must be followed by four hexadecimal digits") from exc
    import yaml

    try:
        content = yaml.safe_load(text) or {}
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None)  # the error message quotes the file, which may contain a secret
        line = f" in line {mark.line + 1}" if mark is not None else ""
        raise Failure(f"{path} cannot be read: it is not valid YAML{line}") from exc
    if not isinstance(content, dict):
        raise Failure(f"{path} must contain `key: value` lines with these keys: {', '.join(KNOWN_KEYS)}")
    return content


def _refuse_other(path: Path, key: str, value: object) -> None:
    """Raise if a key is unsupported and has a value."""
    if key in _OF_KEY_STORES or (key == _KEY_STORES and str(value).lower() in ("none", "", "false")):
        return
    if key == _KEY_STORES:
        raise Failure(
            f"{path}: {key} is not supported: convert the stores to PEM files for tlsTrustCertsFilePath,"
            " tlsCertificateFilePath and tlsKeyFilePath"
        )
    if key in _NO_EFFECT:
        if value not in (None, ""):
            click.echo(f"magnetar: {path}: {key}={value} has no effect: {_NO_EFFECT[key]}", err=True)
        return
    if key in _NOT_SUPPORTED:
        if value in (None, "", _PULSAR_DEFAULTS.get(key)):
            return
        raise Failure(f"{path}: {key} is not supported: {_NOT_SUPPORTED[key]}; remove it")
    raise Failure(f"{path}: unknown key {key!r}{nearest(key, KNOWN_KEYS)} (known keys: {', '.join(KNOWN_KEYS)})")
