"""Names of authentication plugins: short names, Pulsar's names, and custom classes."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from ...errors import InvalidConfig, MagnetarError
from .authentication import Authentication
from .authentication_basic import AuthenticationBasic
from .authentication_oauth2 import AuthenticationOAuth2
from .authentication_tls import tls_of
from .authentication_token import AuthenticationToken

_JAVA = "org.apache.pulsar.client.impl.auth."
_NOTHING = ("", "none", f"{_JAVA}AuthenticationDisabled")
_MAKERS: dict[str, tuple[Callable[[str], Authentication], tuple[str, ...]]] = {
    "token": (AuthenticationToken, (f"{_JAVA}AuthenticationToken", "AuthenticationToken")),
    "basic": (
        lambda params: AuthenticationBasic(auth_params_string=params),
        (f"{_JAVA}AuthenticationBasic", "AuthenticationBasic"),
    ),
    "tls": (tls_of, (f"{_JAVA}AuthenticationTls", "AuthenticationTls", "AuthenticationTLS")),
    "oauth2": (
        AuthenticationOAuth2,
        (f"{_JAVA}oauth2.AuthenticationOAuth2", "AuthenticationOAuth2", "AuthenticationOauth2"),
    ),
}
"""By short name: the factory, which takes the plugin's parameters, and the plugin's other names."""
_FROM = ("", "pulsar.", "magnetar.client.")
"""Optional prefixes of a class name, because Python programs import it from either package."""
_SHOWN_CHARACTERS = 120


def authentication_of(plugin: str, params: str) -> Authentication | None:
    """Create a plugin by name; return None for a name that disables authentication.

    Args:
        plugin: ``token``, ``basic``, ``tls``, ``oauth2``, the name of Pulsar's class for it in Java or Python, or
            ``module:Class`` or ``module.Class`` of a subclass of `Authentication`.
        params: for token: the token, ``token:…``, ``{"token": "…"}`` or ``file:///…``; for basic:
            ``{"userId": "…", "password": "…"}`` or ``user:password``; for tls: ``tlsCertFile:…,tlsKeyFile:…``;
            for oauth2: JSON, see `AuthenticationOAuth2`; for a custom plugin, any string.

    Raises:
        InvalidConfig: the plugin is unknown, or rejects its parameters, which are not shown.
    """
    if plugin in _NOTHING:
        return None
    make = _maker(plugin)
    if make is not None:
        return make(params)
    if plugin.startswith("org.apache.pulsar.") or not any(mark in plugin for mark in ".:"):
        raise InvalidConfig(
            f"unknown auth_plugin {plugin[:_SHOWN_CHARACTERS]!r}: expected {', '.join(_MAKERS)}, one of Pulsar's names"
            " for these, or a custom module:Class"
        )
    return _own(plugin, params)


def is_built_in(plugin: str) -> bool:
    """Return whether a name is a built-in plugin or disables authentication, so that no other code is imported."""
    return plugin in _NOTHING or _maker(plugin) is not None


def _maker(plugin: str) -> Callable[[str], Authentication] | None:
    for short, (make, names) in _MAKERS.items():
        if plugin == short or any(plugin == f"{before}{name}" for name in names for before in _FROM):
            return make
    return None


def _own(plugin: str, params: str) -> Authentication:
    shown = plugin[:_SHOWN_CHARACTERS]
    module, _, name = plugin.partition(":") if ":" in plugin else plugin.rpartition(".")
    try:
        kind = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidConfig(f"cannot import auth_plugin {shown!r}: {error}") from error
    if not isinstance(kind, type) or not issubclass(kind, Authentication):
        raise InvalidConfig(f"auth_plugin {shown!r} is not a subclass of magnetar.client.Authentication")
    try:
        made: Authentication = kind(params)  # type: ignore[call-arg]  # the contract of `Authentication`
    except MagnetarError:
        raise
    except Exception as error:  # from user code; its message may contain the parameters
        raise InvalidConfig(f"auth_plugin {shown!r} rejected auth_params: {type(error).__name__}") from error
    if not made.method:
        raise InvalidConfig(f"auth_plugin {shown!r} has no method: set it to the method name on the server")
    return made
