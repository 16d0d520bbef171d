"""Shared parts of the ``pulsar`` source and sink: connection to the other cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..api.connector import Retry
from ..api.connector_config import option
from ..client.blocking import Client
from ..client.config import ClientConfig
from ..client.connections.service_url import parse_service_url
from ..client.encryption.keys import UriKeyReader
from ..errors import AuthenticationError, AuthorizationError, InvalidConfig, InvalidTopicName, MagnetarError
from ..security.client_credentials import ClientCredentials
from ..security.credentials.client_security import ClientSecurity
from ..security.credentials.plugins import is_built_in
from ..security.credentials.setting_names import named, renamed
from ..wire.topic_name import parse_topic_name

_T = TypeVar("_T")
OPERATION_S = 5.0


@dataclass(kw_only=True)
class PulsarClusterConfig:
    """Connection settings of the ``pulsar`` connectors."""

    service_url: str = option(
        "Service URL of the other cluster: pulsar://host:port, or pulsar+ssl://host:port with TLS. Separate multiple "
        "hosts with commas."
    )
    auth_plugin: str = option(
        "Authentication plugin: token, basic, tls, oauth2, or the name of Pulsar's class for one of these; empty for "
        "no authentication.",
        default="",
        aliases=("authPluginClassName",),
    )
    auth_params: str = option(
        "Parameters of the authentication plugin, such as token:…, or file:///path on the workers.",
        default="",
        secret=True,
    )
    tls_trust_certs_file_path: str = option(
        "PEM file with trusted CA certificates; empty for the system certificates.", default=""
    )
    tls_certificate_file_path: str = option(
        "PEM file with the connector's certificate, for brokers that require one.", default=""
    )  # fmt: skip
    tls_key_file_path: str = option("PEM file with the private key of that certificate.", default="")
    tls_allow_insecure_connection: bool = option(
        "Whether to accept any broker certificate; for testing only.", default=False
    )
    tls_enable_hostname_verification: bool = option(
        "Whether to verify that a broker's certificate matches its host name.",
        default=True,
        aliases=("tlsHostnameVerificationEnable",),
    )


_NAMES = {
    "auth_plugin": "authPlugin",
    "auth_params": "authParams",
    "tls_trust_certs_file": "tlsTrustCertsFilePath",
    "tls_certificate_file": "tlsCertificateFilePath",
    "tls_key_file": "tlsKeyFilePath",
    "tls_allow_insecure_connection": "tlsAllowInsecureConnection",
    "tls_hostname_verification": "tlsEnableHostnameVerification",
}
"""Option names by client setting."""


def security_of(config: PulsarClusterConfig) -> ClientSecurity:
    """Return the credentials and TLS settings for the other cluster. Raises InvalidConfig."""
    with named(_NAMES):
        return ClientSecurity(
            auth_plugin=config.auth_plugin,
            auth_params=config.auth_params,
            tls_trust_certs_file=config.tls_trust_certs_file_path,
            tls_certificate_file=config.tls_certificate_file_path,
            tls_key_file=config.tls_key_file_path,
            tls_allow_insecure_connection=config.tls_allow_insecure_connection,
            tls_hostname_verification=config.tls_enable_hostname_verification,
        )


def check_cluster(config: PulsarClusterConfig, topics: list[str], key: str, admin_url: str = "") -> None:
    """Validate addresses, credentials and topic names. Raises InvalidConfig with the option name."""
    try:
        parse_service_url(config.service_url)
    except InvalidConfig as error:
        raise InvalidConfig(f"invalid serviceUrl: {error}") from error
    if not is_built_in(config.auth_plugin):
        # A worker must not import the deployer's code when validating a config.
        raise InvalidConfig(
            f"unknown authPlugin {config.auth_plugin[:80]!r}: expected token, basic, tls, oauth2, or the Pulsar class "
            f"name of one of these"
        )
    with named(_NAMES):
        ClientCredentials(security_of(config)).check_url(config.service_url, admin_url or None)
    if not topics:
        raise InvalidConfig(f"{key} must not be empty")
    for topic in topics:
        try:
            parse_topic_name(topic)
        except InvalidTopicName as error:
            raise InvalidConfig(f"invalid {key}: {error}") from error


def check_key(field: str, uri: str) -> None:
    """Reject a key that is included in the config, where others may read it. Raises InvalidConfig."""
    if uri.startswith("data:") or "PRIVATE KEY" in uri:
        raise InvalidConfig(
            f"{field} must not contain the key itself: store it in a file on the workers, and set file:///path"
        )


def encrypting(names: Sequence[str], uri: str) -> dict[str, Any]:
    """Return the producer settings for encryption with a public key; empty without key names."""
    return {"encryption_keys": tuple(names), "crypto_key_reader": UriKeyReader(uri)} if names else {}


def decrypting(uri: str, action: str, *, is_ordered: bool) -> dict[str, Any]:
    """Return the consumer settings for decryption with a private key.

    Args:
        uri: URI of the key; empty for no key.
        action: FAIL, DISCARD or CONSUME.
        is_ordered: with FAIL, whether reading must stop at an entry that cannot be decrypted.
    """
    settings: dict[str, Any] = {"crypto_failure_action": action}
    if uri:
        settings["crypto_key_reader"] = UriKeyReader(uri)
    if is_ordered and action == "FAIL":
        settings["on_undecryptable"] = lambda topic, position, why: None
    return settings


def connected(config: PulsarClusterConfig, use: Callable[[Client], _T]) -> tuple[Client, _T]:
    """Return a client and the object that `use` opens with it. On failure, the client is closed.

    Raises:
        Retry: the cluster is unavailable or rejects the request.
    """
    security = security_of(config).to_dict()
    settings = ClientConfig(operation_timeout_s=OPERATION_S, backoff_max_ms=1000, **security)
    client = Client(config.service_url, settings)
    try:
        return client, use(client)
    except BaseException as error:
        client.close()
        if isinstance(error, MagnetarError) and not isinstance(error, InvalidConfig):
            raise away(config, error) from error
        raise


def away(config: PulsarClusterConfig, error: MagnetarError | str, url: str = "") -> Retry:
    """Return the error for a failed request to a cluster, with its URL, by default `service_url`."""
    where = url or config.service_url
    if isinstance(error, str):
        return Retry(f"{where}: {error}")
    text = renamed(str(error), _NAMES)
    if isinstance(error, AuthenticationError | AuthorizationError) and not config.auth_plugin:
        text = f"{text.partition('; it ')[0]}: set authPlugin and authParams"
    return Retry(f"{where}: {type(error).__name__}: {text}")
