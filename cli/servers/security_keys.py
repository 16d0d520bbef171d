"""Keys of a server's file for TLS, authentication and authorization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .config_key import Key
from .config_values import number, settings, text, truth, words

TLS_KEYS: dict[str, Key] = {
    "tlsCertificateFilePath": Key("tls", "certificate_file", text),
    "tlsKeyFilePath": Key("tls", "key_file", text),
    "tlsTrustCertsFilePath": Key("tls", "trust_certs_file", text),
    "tlsRequireTrustedClientCertOnConnect": Key("tls", "requires_client_certificate", truth),
    "tlsCrlFilePath": Key("tls", "crl_file", text),
    "tlsProtocols": Key("tls", "protocols", words),
    "tlsCiphers": Key("tls", "ciphers", words),
    "tlsCertRefreshCheckDurationSec": Key("tls", "refresh_check_s", number),
}
"""Fields of `ServerTls`. ``tlsCrlFilePath`` is not Pulsar's."""


TOKEN_KEYS: dict[str, Key] = {
    "tokenSecretKey": Key("security", "token_secret_key", text),
    "tokenPublicKey": Key("security", "token_public_key", text),
    "tokenPublicAlg": Key("security", "token_public_alg", text),
    "tokenAuthClaim": Key("security", "token_auth_claim", text),
    "tokenAudienceClaim": Key("security", "token_audience_claim", text),
    "tokenAudience": Key("security", "token_audience", text),
    "tokenAllowedClockSkewSeconds": Key("security", "token_clock_skew_s", number),
    "basicAuthConf": Key("security", "basic_auth_conf", text),
}
"""Fields of `ServerSecurity` that Pulsar's functions_worker.yml has below ``properties``."""


def _properties(value: Any) -> dict[str, str]:
    found = settings(value)
    if not all(isinstance(one, str | int | float) for one in found.values()):
        raise ValueError("expected names with strings or numbers; quote values that contain a comma")
    return {name: str(one) for name, one in found.items()}


SECURITY_KEYS: dict[str, Key] = {
    "authenticationEnabled": Key("security", "enabled", truth),
    "authenticationProviders": Key("security", "providers", words),
    **TOKEN_KEYS,
    "tokenSettingPrefix": Key("security", "", text),
    "anonymousUserRole": Key("security", "anonymous_role", text),
    "proxyRoles": Key("security", "proxy_roles", words),
    "authenticateOriginalAuthData": Key("security", "authenticate_original", truth),
    "authenticationRefreshCheckSeconds": Key("security", "refresh_check_s", number),
    "authenticateMetricsEndpoint": Key("security", "authenticate_metrics", truth),
    "properties": Key("security", "properties", _properties),
}
"""Fields of `ServerSecurity`."""


AUTHORIZATION_KEYS: dict[str, Key] = {
    "authorizationEnabled": Key("authorization", "is_enabled", truth),
    "superUserRoles": Key("authorization", "super_user_roles", words),
    "authorizationAllowWildcardsMatching": Key("authorization", "allows_wildcards", truth),
}
"""Fields of `AuthorizationSettings`, which also uses `proxyRoles`."""

CLIENT_KEYS: dict[str, Key] = {
    "brokerClientAuthenticationPlugin": Key("client", "auth_plugin", text),
    "brokerClientAuthenticationParameters": Key("client", "auth_params", text),
    "brokerClientTrustCertsFilePath": Key("client", "tls_trust_certs_file", text),
    "brokerClientCertificateFilePath": Key("client", "tls_certificate_file", text),
    "brokerClientKeyFilePath": Key("client", "tls_key_file", text),
}
"""Fields of `ClientSecurity`: the credentials that workers and their functions send to brokers, and trusted CAs."""

WORKER_CLIENT_KEYS: dict[str, Key] = {
    **CLIENT_KEYS,
    "brokerClientAuthenticationEnabled": Key("client", "", truth),
    "clientAuthenticationPlugin": Key("client", "auth_plugin", text),
    "clientAuthenticationParameters": Key("client", "auth_params", text),
    "tlsAllowInsecureConnection": Key("client", "tls_allow_insecure_connection", truth),
    "tlsEnableHostnameVerification": Key("client", "tls_hostname_verification", truth),
}
"""Fields of `ClientSecurity` in functions_worker.yml, which has additional names for some."""


PREFIX = "tokenSettingPrefix"


def without_prefix(values: Mapping[str, Any]) -> dict[str, Any]:
    """Remove ``tokenSettingPrefix`` from the names of token settings.

    Raises:
        ValueError: a token setting lacks the prefix, so that Pulsar would not read it.
    """
    prefix = str(values.get(PREFIX) or "")
    if not prefix:
        return dict(values)
    prefixed = {prefix + name: name for name in TOKEN_KEYS if name.startswith("token")}
    lacking = [name for name in prefixed.values() if name in values]
    if lacking:
        raise ValueError(f"{lacking[0]} is ignored with {PREFIX}: rename it to {prefix}{lacking[0]}")
    return {prefixed.get(name, name): value for name, value in values.items() if name != PREFIX}


def lift_properties(security: dict[str, Any]) -> None:
    """Move known settings of Pulsar's workers out of ``properties``; the remaining ones are for custom providers.

    Raises:
        ValueError: a value is invalid.
    """
    rest = {}
    for name, value in without_prefix(security.get("properties", {})).items():
        key = TOKEN_KEYS.get(name)
        if key is None:
            rest[name] = value
        elif value:
            security.setdefault(key.field, key.read(value))
    if "properties" in security:
        security["properties"] = rest
