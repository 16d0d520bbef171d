"""Provider classes for the names in `authenticationProviders`."""

from __future__ import annotations

import importlib
import re

from ...errors import InvalidConfig
from .provider import AuthenticationProvider
from .settings import ServerSecurity

_PULSAR = "org.apache.pulsar.broker.authentication."
_OURS = {
    "token": ("tokens", "TokenProvider"),
    "basic": ("basic", "BasicProvider"),
    "tls": ("certificates", "TlsProvider"),
}
"""Module and class of each built-in provider; imported only if configured."""
_NAMES = {
    **{name: name for name in _OURS},
    f"{_PULSAR}AuthenticationProviderToken": "token",
    f"{_PULSAR}AuthenticationProviderBasic": "basic",
    f"{_PULSAR}AuthenticationProviderTls": "tls",
}
_CLASS = re.compile(r"[A-Za-z_][\w.]*[.:][A-Za-z_]\w*")


def provider_class(name: str) -> type[AuthenticationProvider]:
    """Import and return the provider class of a name.

    Raises:
        InvalidConfig: the name is unknown, cannot be imported, or is not a provider class.
    """
    known = _NAMES.get(name)
    if known is not None:
        module, attribute = _OURS[known]
        found = getattr(importlib.import_module(f".{module}", __package__), attribute)
    elif name.startswith("org.apache.") or not _CLASS.fullmatch(name):
        raise InvalidConfig(
            f"authenticationProviders: unknown provider {name[:100]!r}: expected token, basic, tls, or a custom"
            " module.Class"
        )
    else:
        module, _, attribute = name.replace(":", ".").rpartition(".")
        try:
            found = getattr(importlib.import_module(module), attribute)
        except Exception as error:  # third-party code: any failure prevents the server from starting
            raise InvalidConfig(
                f"authenticationProviders: cannot import {name}: {type(error).__name__}: {error}"
            ) from error
    if not (isinstance(found, type) and issubclass(found, AuthenticationProvider)):
        raise InvalidConfig(
            f"authenticationProviders: {name} is not a subclass of"
            " magnetar.security.authentication.provider.AuthenticationProvider"
        )
    return found


def load_providers(settings: ServerSecurity) -> list[AuthenticationProvider]:
    """Create a server's providers, in the order of the settings.

    Raises:
        InvalidConfig: no providers are configured, or one rejects the settings.
    """
    if not settings.providers:
        raise InvalidConfig(
            "authenticationEnabled requires authenticationProviders, such as"
            " org.apache.pulsar.broker.authentication.AuthenticationProviderToken"
        )
    providers: list[AuthenticationProvider] = []
    if settings.forward_key:
        from .forwarded import ForwardedProvider

        providers.append(ForwardedProvider(settings))
    for name in dict.fromkeys(settings.providers):
        found = provider_class(name)
        try:
            provider = found(settings)
        except InvalidConfig:
            raise
        except Exception as error:  # third-party code, as above
            raise InvalidConfig(
                f"authenticationProviders: cannot start {name}: {type(error).__name__}: {error}"
            ) from error
        if not provider.method:
            raise InvalidConfig(f"authenticationProviders: {name} has no method: set the method name that clients use")
        providers.append(provider)
    return providers
