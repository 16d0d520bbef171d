"""Secrets of a function, as returned by `Context.get_secret`, and their providers.

For each name, the record contains the value that a provider needs to find the secret. The provider is configured in the
worker (`secretsProviderClassName`); by default the stored value itself describes the location:
| stored value | the secret |
| --- | --- |
| a string | the string |
| ``{"env": NAME}`` | that environment variable of the worker |
| ``{"file": PATH}`` | the content of that file |
| ``{"path": DIRECTORY, "key": NAME}`` | the content of that file in the directory, as Kubernetes mounts secrets |

Secrets returned to a function are hidden in log and status.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from ..errors import FunctionLoadError, InvalidConfig
from ..wire.functions_pb2 import FunctionDetails, FunctionMetaData
from .spec import InstanceSpec

FILE_BYTES_MAX = 1 << 20


class SecretsProvider(Protocol):
    """Interface of secrets providers; Pulsar's Python providers have the same methods."""

    def init(self, config: Mapping[str, Any]) -> object:
        """Read `secretsProviderConfig` of the worker's configuration; called once."""

    def provide_secret(self, secret_name: str, secret_path: Any) -> str | None:
        """Return a secret, or None if it does not exist.

        Args:
            secret_name: name used by the function.
            secret_path: value stored in the function's config.
        """


class ClearTextSecretsProvider:
    """Provider whose stored value is the secret."""

    def init(self, config: Mapping[str, Any]) -> None:
        """Do nothing: this provider has no settings."""

    def provide_secret(self, secret_name: str, secret_path: Any) -> str | None:
        """Return the stored value if it is a string, else None."""
        return secret_path if isinstance(secret_path, str) else None


class EnvironmentBasedSecretsProvider:
    """Provider whose secrets are environment variables of the worker."""

    def init(self, config: Mapping[str, Any]) -> None:
        """Do nothing: this provider has no settings."""

    def provide_secret(self, secret_name: str, secret_path: Any) -> str | None:
        """Return the environment variable named like the secret, or None."""
        return os.environ.get(secret_name)


class StatedSecretsProvider:
    """Default provider, whose stored value describes where the secret is (see the table above)."""

    def init(self, config: Mapping[str, Any]) -> None:
        """Do nothing: this provider has no settings."""

    def provide_secret(self, secret_name: str, secret_path: Any) -> str | None:
        """Return a secret, or None if the variable or file does not exist.

        Raises:
            InvalidConfig: the stored value does not describe a location.
        """
        match secret_path:
            case str():
                return secret_path
            case {"env": str(name), **rest} if not rest:
                return os.environ.get(name)
            case {"file": str(path), **rest} if not rest:
                return _content(Path(path))
            case {"path": str(path), "key": str(key), **rest} if not rest:
                return _content(Path(path) / key)
        raise InvalidConfig(
            f"invalid secrets.{secret_name}: expected a string, {{'env': NAME}}, {{'file': PATH}} or"
            " {'path': DIRECTORY, 'key': FILE}"
        )


def _content(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
        if len(content) > FILE_BYTES_MAX:
            raise InvalidConfig(f"the secret in {path} is larger than {FILE_BYTES_MAX} bytes")
        return content.decode().removesuffix("\n")
    except (OSError, ValueError):  # no such file, or not UTF-8
        return None


_BUILT_IN: dict[str, type[SecretsProvider]] = {
    "": StatedSecretsProvider,
    "ClearTextSecretsProvider": ClearTextSecretsProvider,
    "EnvironmentBasedSecretsProvider": EnvironmentBasedSecretsProvider,
}
"""Providers by class name; Pulsar's names have a module, as in secretsprovider.ClearTextSecretsProvider."""


def make_provider(name: str, config: Mapping[str, Any]) -> SecretsProvider:
    """Create a worker's secrets provider.

    Args:
        name: class name: ``module.Class`` in the worker's environment, or a built-in one; empty for the default.
        config: settings of the provider.

    Raises:
        FunctionLoadError: the class does not exist, or rejects its settings.
    """
    module_name, _, class_name = name.rpartition(".")
    try:
        if module_name in ("", "secretsprovider") and class_name in _BUILT_IN:
            provider: Any = _BUILT_IN[class_name]()
        else:
            provider = getattr(importlib.import_module(module_name or class_name), class_name)()
        provider.init(dict(config))
        if not callable(provider.provide_secret):
            raise TypeError("provide_secret is not a method")
    except Exception as error:
        raise FunctionLoadError(
            f"secretsProviderClassName {name}: {type(error).__name__}: {error}; fix it in the worker's"
            " configuration, or in --secrets-provider-classname of localrun"
        ) from error
    made: SecretsProvider = provider
    return made


def check_isolated(stored: Mapping[str, Any]) -> None:
    """Reject secrets in the worker's environment, which isolated instances cannot access.

    Raises:
        InvalidConfig: a secret is in the worker's environment.
    """
    for name, place in stored.items():
        if isinstance(place, dict) and "env" in place:
            raise InvalidConfig(
                f"secrets.{name} is in the worker's environment, which is not available to user code under"
                " processRuntimeUsers: use {'file': PATH} with a file that the tenant's system user may read, or set"
                " secretsProviderClassName of the worker"
            )


def needs_worker(spec: InstanceSpec) -> bool:
    """Return whether an instance's secrets require a provider from the worker's environment.

    A connector's secrets are the strings in its record, regardless of the provider.
    """
    if not spec.details.secretsMap or spec.details.componentType in (FunctionDetails.SOURCE, FunctionDetails.SINK):
        return False
    return spec.secrets_provider.rpartition(".")[2] not in _BUILT_IN


def with_values(spec: InstanceSpec) -> InstanceSpec:
    """Return a spec that contains the secrets themselves and needs no provider.

    Raises:
        FunctionLoadError: the provider cannot be created.
        Exception: the provider raised an exception.
    """
    provider = make_provider(spec.secrets_provider, json.loads(spec.secrets_config or "{}"))
    stored = json.loads(spec.details.secretsMap or "{}")
    found = {name: provider.provide_secret(name, place) for name, place in stored.items()}
    metadata = FunctionMetaData.FromString(spec.metadata.SerializeToString())
    values = {name: secret for name, secret in found.items() if isinstance(secret, str)}
    metadata.functionDetails.secretsMap = json.dumps(values)
    return replace(spec, metadata=metadata, secrets_provider="ClearTextSecretsProvider", secrets_config="")


class Secrets:
    """The secrets of one function."""

    def __init__(
        self, stored: Mapping[str, Any], provider: SecretsProvider, hide: Callable[[Iterable[str]], None]
    ) -> None:
        """Create the secrets without looking them up.

        Args:
            stored: stored value of each secret.
            provider: finds the secrets.
            hide: called with all secrets returned so far, to hide them in log and status.
        """
        self._stored = stored
        self._provider = provider
        self._hide = hide
        self._known = {value for value in stored.values() if isinstance(value, str)}
        if self._known:
            hide(self._known)

    def get(self, name: str) -> str | None:
        """Return a secret, or None if it does not exist.

        Raises:
            InvalidConfig: the stored value does not describe a location.
            Exception: the worker's provider raised an exception.
        """
        if name not in self._stored:
            return None
        secret = self._provider.provide_secret(name, self._stored[name])
        if isinstance(secret, str) and secret not in self._known:
            self._known.add(secret)
            self._hide(self._known)
        return secret


def secrets_of(spec: InstanceSpec, hide: Callable[[Iterable[str]], None]) -> Secrets | None:
    """Return the secrets of an instance, or None if its function has none.

    Raises:
        FunctionLoadError: the worker's provider cannot be created.
    """
    text = spec.details.secretsMap
    stored = json.loads(text) if text else {}
    if not stored:
        return None
    if spec.user is not None:
        check_isolated(stored)
    return Secrets(stored, make_provider(spec.secrets_provider, json.loads(spec.secrets_config or "{}")), hide)
