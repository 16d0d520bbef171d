"""A server's ``--config`` file: YAML or Pulsar's ``key=value`` lines, read whole, with all its faults at once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import InvalidConfig
from ...security.credentials.client_security import ClientSecurity
from ...wire.printable import one_line
from ..failure import Failure, Faults, nearest
from ..properties_file import read_properties
from .config_key import Key
from .config_values import store_url, whole
from .pulsar_keys import PREFIXES, as_text, is_same, pulsar_keys, reason_of
from .security_keys import lift_properties, without_prefix

Settings = dict[str, dict[str, Any]]

_YAML = (".yml", ".yaml", ".json")
_PROPERTIES = (".conf", ".properties")
_FIRST_LINE = re.compile(r"^[ \t]*[\w.]+[ \t]*=", re.MULTILINE)
_SECRET = re.compile(r"^(tokenSecretKey|basicAuthConf|properties)$|(Password|AuthenticationParameters)$")
"""Names of keys whose values errors do not repeat."""
_RECORDS = ("broker", "storage", "worker", "state", "tls", "security", "authorization", "client")
_CONFIGURATION_STORES = ("configurationMetadataStoreUrl", "configurationStoreServers", "globalZookeeperServers")


def read_server_file(path: str | None, keys: Mapping[str, Key], *pulsar: str) -> Settings:
    """Return the settings of a file by record: ``{"broker": {field: value}, …}``; without a file nothing.

    Args:
        path: the file.
        keys: those that have an effect.
        pulsar: whose other keys are accepted at Pulsar's defaults: ``broker``, ``worker``.

    Raises:
        Failure: the file is unreadable.
        Faults: keys that nobody knows, and values that are refused; all of them, in the order of the file.
    """
    found: Settings = {record: {} for record in _RECORDS}
    if path is None:
        return found
    content = {name: value for name, value in _content(path).items() if as_text(value) not in ("", "{}")}
    try:
        content = without_prefix(content)
    except ValueError as exc:
        raise Failure(f"--config {path}: {exc}") from exc
    faults: list[str] = []
    for name, value in content.items():
        key = keys.get(name)
        try:
            if key is None:
                _check_without_effect(name, value, keys, pulsar)
                continue
            setting = key.read(value)
            if key.field:
                _check_alone(key, setting)
                found[key.record][key.field] = setting
        except _UnknownKey as exc:
            faults.append(str(exc))
        except (ValueError, InvalidConfig) as exc:
            faults.append(f"{name}: {_shown(name, value)} is refused: {exc}")
    if not faults and "broker" in pulsar:
        faults = _combine(content, found["broker"])
    if not faults:
        faults = _combine_security(content, found)
    if faults:
        raise Faults(f"--config {path}: {fault}" for fault in faults)
    return found


def _shown(name: str, value: Any) -> str:
    """Return a value as an error shows it, unless it may be a secret."""
    return "the value" if _SECRET.search(name) else repr(value)


class _UnknownKey(Exception):
    """No file of Pulsar has this key, nor have we."""


def _content(path: str) -> dict[str, Any]:
    """Return the keys of a file with their values, nested ones of YAML as ``outer.inner`` beside the outer one."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as exc:
        raise Failure(f"--config {path} cannot be read: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise Failure(f"--config {path} is no text in UTF-8: byte {exc.start} is {exc.object[exc.start]:#04x}") from exc
    if _is_properties(path, text):
        try:
            return dict(read_properties(text))
        except ValueError as exc:
            raise Failure(f"--config {path}: {exc}") from exc
    import yaml  # here: a server without a file needs none

    try:
        content = yaml.safe_load(text) or {}
    except (yaml.YAMLError, ValueError, RecursionError) as exc:
        raise Failure(f"--config {path} is no YAML: {one_line(str(exc))}") from exc
    if not isinstance(content, dict):
        raise Failure(f"--config {path} must hold `key: value` lines, such as `brokerServicePort: 6650`")
    return {str(name): value for name, value in content.items()}


def _is_properties(path: str, text: str) -> bool:
    """Return whether a file has ``key=value`` lines: by the end of its name, else by its first line."""
    ending = Path(path).suffix.lower()
    if ending in _YAML + _PROPERTIES:
        return ending in _PROPERTIES
    said = (line for line in text.splitlines() if line.strip() and line.lstrip()[0] not in "#!")
    return _FIRST_LINE.match(next(said, "")) is not None


def _check_without_effect(name: str, value: Any, keys: Mapping[str, Key], pulsar: tuple[str, ...]) -> None:
    """Accept a key without an effect at Pulsar's default.

    Raises:
        _UnknownKey: Pulsar has no such key.
        ValueError: the value is another one; says which are accepted, and why.
    """
    for file in pulsar:
        table = pulsar_keys(file)
        inner = {f"{name}.{sub}": one for sub, one in value.items()} if isinstance(value, dict) else {}
        if inner and any(other.startswith(f"{name}.") for other in table):
            for part, one in inner.items():
                if as_text(one):
                    _check_without_effect(part, one, keys, (file,))
            return
        accepted = table.get(name)
        if accepted is None and not name.startswith(PREFIXES):
            continue
        given = as_text(value)
        if any(is_same(given, one) for one in accepted or ()):
            return
        allowed = [one for one in accepted or () if one]
        works = f"only {' or '.join(allowed)} works here" if allowed else "it is not supported"
        raise ValueError(f"{works}: {reason_of(name, file)}; remove the line")
    known = [*keys, *(other for file in pulsar for other in pulsar_keys(file))]
    raise _UnknownKey(f"unknown key {name}{nearest(name, known)}; known keys stand in docs/cli.md")


def _check_alone(key: Key, setting: Any) -> None:
    """Check a setting's range, so that it is reported with the file's other faults; raises InvalidConfig."""
    if key.record == "broker":
        from ...broker.config import BrokerConfig

        BrokerConfig(**{key.field: setting})
    elif key.record == "storage":
        from ...broker.storage.config import StorageConfig

        StorageConfig(**{key.field: setting})
    elif key.record == "worker":
        from ...worker.config import WorkerConfig

        urls = {"service_url": "pulsar://localhost:6650", "admin_url": "http://localhost:8080"}
        WorkerConfig(**{**urls, "data_dir": Path(), key.field: setting})
    elif key.record == "tls":
        from ...security.server_tls_settings import ServerTls

        ServerTls(**{key.field: setting})
    elif key.record == "security":
        from ...security.authentication.settings import ServerSecurity

        ServerSecurity(**{key.field: setting})
    elif key.record == "authorization":
        from ...security.authorization.settings import AuthorizationSettings

        AuthorizationSettings(**{key.field: setting})


def _combine(content: Mapping[str, Any], broker: dict[str, Any]) -> list[str]:
    """Settle what several keys of a broker's file say together, former names among them; return what is wrong."""
    kind = content.get("allowAutoTopicCreationType")
    if kind == "non-partitioned":
        broker["auto_topic_partitions"] = 0
    elif kind == "partitioned":
        broker["auto_topic_partitions"] = max(1, broker.get("auto_topic_partitions", 1))
    faults = []
    servers = content.get("zookeeperServers")
    if servers and "metadata_store_url" not in broker:
        broker["metadata_store_url"] = store_url(servers)
    timeout = content.get("zooKeeperOperationTimeoutSeconds")
    if timeout is not None and whole(timeout) > 0:
        broker["metadata_timeout_s"] = float(timeout)
    for name in _CONFIGURATION_STORES:
        url = content.get(name)
        if url and store_url(url) != broker.get("metadata_store_url"):
            faults.append(
                f"{name}: {url!r} is refused: clusters, tenants and policies are kept where all metadata is;"
                " give the value of metadataStoreUrl, or remove the line"
            )
    return faults


def _combine_security(content: Mapping[str, Any], found: Settings) -> list[str]:
    """Settle what several keys about TLS and authentication say together; return what is wrong."""
    if str(content.get("tlsEnabled", "false")).lower() != "true":
        found["worker"].pop("worker_tls_port", None)  # functions_worker.yml of Pulsar names the port all the same
    elif "worker_tls_port" not in found["worker"]:
        return ["tlsEnabled: workerPortTls says on which port; set it, too"]
    client, authorization = found["client"], found["authorization"]
    if str(content.get("brokerClientAuthenticationEnabled", "true")).lower() == "false":
        client.pop("auth_plugin", None)  # functions_worker.yml of Pulsar names it all the same
        client.pop("auth_params", None)
    if "proxy_roles" in found["security"]:
        authorization["proxy_roles"] = found["security"]["proxy_roles"]
    try:
        lift_properties(found["security"])
    except ValueError as error:
        return [f"properties: {error}"]
    if authorization.get("is_enabled") and not found["security"].get("enabled"):
        return ["authorizationEnabled: without authenticationEnabled nobody is known; set it, too"]
    try:
        ClientSecurity(**client)
    except InvalidConfig as error:
        return [f"brokerClient…: {error}"]
    return []
