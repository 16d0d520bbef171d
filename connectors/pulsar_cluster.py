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
        "The other cluster, pulsar://host:port, or pulsar+ssl://host:port with TLS; several hosts with commas between"
        " them."
    )
    auth_plugin: str = option(
        "What shows it who the connector is: token, basic, tls, oauth2, or Pulsar's class of one of these; empty for"
        " nothing.",
        default="",
        aliases=("authPluginClassName",),
    )
    auth_params: str = option(
        "What the plugin takes, such as token:…, or file:///path on the workers.", default="", secret=True
    )
    tls_trust_certs_file_path: str = option(
        "File with the certificates, in PEM, that sign those of brokers; empty for those of the system.", default=""
    )
    tls_certificate_file_path: str = option(
        "The connector's certificate, in PEM, where brokers ask for one.", default=""
    )  # fmt: skip
    tls_key_file_path: str = option("Its key, in PEM.", default="")
    tls_allow_insecure_connection: bool = option("Accept any broker certificate; for testing only.", default=False)
    tls_enable_hostname_verification: bool = option(
        "The certificate of a broker must name the host that is connected to.",
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
"""Client settings -> fields."""


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
    """Validate addresses, credentials and topic names. Raises InvalidConfig, naming the field."""
    try:
        parse_service_url(config.service_url)
    except InvalidConfig as error:
        raise InvalidConfig(f"serviceUrl: {error}") from error
    if not is_built_in(config.auth_plugin):
        # When validating a config, a worker must not import the deployer's code.
        raise InvalidConfig(
            f"unknown authPlugin {config.auth_plugin[:80]!r}: expected token, basic, tls or oauth2, or Pulsar's names"
            " of these"
        )
    with named(_NAMES):
        ClientCredentials(security_of(config)).check_url(config.service_url, admin_url or None)
    if not topics:
        raise InvalidConfig(f"{key} is empty; give the name of a topic")
    for topic in topics:
        try:
            parse_topic_name(topic)
        except InvalidTopicName as error:
            raise InvalidConfig(f"{key}: {error}") from error


def check_key(field: str, uri: str) -> None:
    """Reject a key given in the config itself, which others may read. Raises InvalidConfig."""
    if uri.startswith("data:") or "PRIVATE KEY" in uri:
        raise InvalidConfig(f"{field}: put the key into a file on the workers, and give file:///path")


def encrypting(names: Sequence[str], uri: str) -> dict[str, Any]:
    """Return the producer settings for encryption with a public key; empty without names."""
    return {"encryption_keys": tuple(names), "crypto_key_reader": UriKeyReader(uri)} if names else {}


def decrypting(uri: str, action: str, *, is_ordered: bool) -> dict[str, Any]:
    """Return the consumer settings for decryption with a private key.

    Args:
        uri: URI of the key; empty for none.
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
    """Return a client and the object that `use` opens with it; the client is closed if that fails.

    Raises:
        Retry: the cluster is unavailable or refuses the request.
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
    """Return the error for an unavailable or refusing cluster, with its URL, by default `service_url`."""
    where = url or config.service_url
    if isinstance(error, str):
        return Retry(f"{where}: {error}")
    text = renamed(str(error), _NAMES)
    if isinstance(error, AuthenticationError | AuthorizationError) and not config.auth_plugin:
        text = f"{text.partition('; it requires authentication')[0]}; give authPlugin and authParams"
    return Retry(f"{where}: {type(error).__name__}: {text}")
