"""Reader for a server's ``--config`` file, YAML or Pulsar's ``key=value`` lines; reports all errors together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...broker.listeners import check_listeners
from ...errors import InvalidConfig
from ...security.credentials.client_security import ClientSecurity
from ...wire.printable import one_line
from ..failure import Failure, Faults
from ..properties_file import read_properties
from .config_key import Key
from .config_values import store_url, whole
from .pulsar_keys import as_text
from .security_keys import lift_properties, without_prefix
from .without_effect import UnknownKey, WithoutEffect, shown

Settings = dict[str, dict[str, Any]]

_YAML = (".yml", ".yaml", ".json")
_PROPERTIES = (".conf", ".properties")
_FIRST_LINE = re.compile(r"^[ \t]*[\w.]+[ \t]*=", re.MULTILINE)
_RECORDS = ("broker", "storage", "worker", "state", "tls", "security", "authorization", "client")
_CHECKED_TOGETHER = ("internal_listener", "bind_addresses")
"""Fields that can only be validated together with others."""
_TLS_PORTS = "brokerServicePortTls or webServicePortTls"
_CONFIGURATION_STORES = ("configurationMetadataStoreUrl", "configurationStoreServers", "globalZookeeperServers")


def read_server_file(path: str | None, keys: Mapping[str, Key], *pulsar: str) -> Settings:
    """Return a file's settings by record: ``{"broker": {field: value}, …}``; empty without a file.

    Args:
        path: the file.
        keys: keys that have an effect.
        pulsar: files of Pulsar whose other keys are accepted without effect, ``broker`` or ``worker``; those with
            values other than Pulsar's default are logged.

    Raises:
        Failure: the file is unreadable.
        Faults: all unknown keys and invalid values, in the order of the file.
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
    others = WithoutEffect(tuple(keys), pulsar)
    for name, value in content.items():
        key = keys.get(name)
        try:
            if key is None:
                others.take(name, value)
                continue
            setting = key.read(value)
            if key.field:
                _check_alone(key, setting)
                found[key.record][key.field] = setting
        except UnknownKey as exc:
            faults.append(str(exc))
        except (ValueError, InvalidConfig) as exc:
            faults.append(f"{name}: invalid value {shown(name, value)}: {exc}")
    if not faults and "broker" in pulsar:
        faults = _combine(content, found["broker"])
    if not faults:
        faults = _combine_security(content, found, is_worker=pulsar == ("worker",))
    if faults:
        raise Faults(f"--config {path}: {fault}" for fault in faults)
    others.log(path)
    return found


def _content(path: str) -> dict[str, Any]:
    """Return a file's keys and values; nested YAML keys are also added as ``outer.inner``."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as exc:
        raise Failure(f"--config {path} cannot be read: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise Failure(f"--config {path} is not valid UTF-8: byte {exc.start} is {exc.object[exc.start]:#04x}") from exc
    if _is_properties(path, text):
        try:
            return dict(read_properties(text))
        except ValueError as exc:
            raise Failure(f"--config {path}: {exc}") from exc
    import yaml  # imported here: not needed without a file

    try:
        content = yaml.safe_load(text) or {}
    except (yaml.YAMLError, ValueError, RecursionError) as exc:
        raise Failure(f"--config {path} is not valid YAML: {one_line(str(exc))}") from exc
    if not isinstance(content, dict):
        raise Failure(f"--config {path} must contain `key: value` lines, such as `brokerServicePort: 6650`")
    return {str(name): value for name, value in content.items()}


def _is_properties(path: str, text: str) -> bool:
    """Return whether a file has ``key=value`` lines, based on its extension or its first line."""
    ending = Path(path).suffix.lower()
    if ending in _YAML + _PROPERTIES:
        return ending in _PROPERTIES
    said = (line for line in text.splitlines() if line.strip() and line.lstrip()[0] not in "#!")
    return _FIRST_LINE.match(next(said, "")) is not None


def _check_alone(key: Key, setting: Any) -> None:
    """Check a setting's range, so that it is reported with the file's other errors; raise InvalidConfig."""
    if key.field in _CHECKED_TOGETHER:
        return
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
    """Combine interdependent keys of a broker's file, including former names, and return the errors."""
    kind = content.get("allowAutoTopicCreationType")
    if kind == "non-partitioned":
        broker["auto_topic_partitions"] = 0
    elif kind == "partitioned":
        broker["auto_topic_partitions"] = max(1, broker.get("auto_topic_partitions", 1))
    faults = []
    servers = content.get("zookeeperServers")
    if servers and "metadata_store_url" not in broker:
        broker["metadata_store_url"] = store_url(servers)
    try:
        check_listeners(
            broker.get("advertised_listeners", {}),
            broker.get("internal_listener", ""),
            broker.get("bind_addresses", ()),
        )
    except InvalidConfig as error:
        faults.append(str(error))
    timeout = content.get("zooKeeperOperationTimeoutSeconds")
    if timeout is not None and whole(timeout) > 0:
        broker["metadata_timeout_s"] = float(timeout)
    for name in _CONFIGURATION_STORES:
        url = content.get(name)
        if url and store_url(url) != broker.get("metadata_store_url"):
            faults.append(
                f"{name}: invalid value {url!r}: clusters, tenants and policies are stored with all other metadata;"
                " use the value of metadataStoreUrl, or remove the line"
            )
    return faults


def _combine_security(content: Mapping[str, Any], found: Settings, *, is_worker: bool) -> list[str]:
    """Combine interdependent keys for TLS and authentication, and return the errors."""
    fault = _combine_tls(content, found, is_worker=is_worker)
    if fault is not None:
        return [fault]
    client, authorization = found["client"], found["authorization"]
    if str(content.get("brokerClientAuthenticationEnabled", "true")).lower() == "false":
        client.pop("auth_plugin", None)  # Pulsar's functions_worker.yml contains it anyway
        client.pop("auth_params", None)
    if "proxy_roles" in found["security"]:
        authorization["proxy_roles"] = found["security"]["proxy_roles"]
    try:
        lift_properties(found["security"])
    except ValueError as error:
        return [f"properties: {error}"]
    if authorization.get("is_enabled") and not found["security"].get("enabled"):
        return ["authorizationEnabled requires authenticationEnabled: set both"]
    try:
        ClientSecurity(**client)
    except InvalidConfig as error:
        return [f"brokerClient…: {error}"]
    return []


def _combine_tls(content: Mapping[str, Any], found: Settings, *, is_worker: bool) -> str | None:
    """Drop a worker's TLS port unless TLS is enabled; return an error if TLS is requested but not configured."""
    broker, worker = found["broker"], found["worker"]
    is_enabled = str(content.get("tlsEnabled", "false")).lower() == "true"
    if not is_enabled:
        worker.pop("worker_tls_port", None)  # Pulsar's functions_worker.yml contains the port anyway
    elif not (
        {"worker_tls_port", "broker_tls_port", "web_tls_port"} & {*worker, *broker}
        or any(one.has_tls for one in broker.get("bind_addresses", ()))
    ):
        return f"tlsEnabled: 'true' requires a port: set {'workerPortTls' if is_worker else _TLS_PORTS}"
    if is_worker and str(content.get("useTls", "false")).lower() == "true":
        worker["uses_tls"] = True  # checked later against the address, which a flag may override
    return None
