"""What the source and the sink ``pulsar`` have in common: the other cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ..api.connector import Retry
from ..client.blocking import Client
from ..client.config import ClientConfig
from ..client.connections.service_url import parse_service_url
from ..client.encryption.keys import UriKeyReader
from ..errors import AuthenticationError, AuthorizationError, InvalidConfig, InvalidTopicName, MagnetarError
from ..wire.topic_name import parse_topic_name

_T = TypeVar("_T")
OPERATION_S = 5.0


def check_cluster(service_url: str, topics: list[str], key: str) -> None:
    """Refuse a service URL or names of topics that cannot be, naming the field. Raises InvalidConfig."""
    try:
        parse_service_url(service_url)
    except InvalidConfig as error:
        raise InvalidConfig(f"serviceUrl: {error}") from error
    if not topics:
        raise InvalidConfig(f"{key} is empty; give the name of a topic")
    for topic in topics:
        try:
            parse_topic_name(topic)
        except InvalidTopicName as error:
            raise InvalidConfig(f"{key}: {error}") from error


def check_key(field: str, uri: str) -> None:
    """Refuse a key that stands in the config itself, which others may look at. Raises InvalidConfig."""
    if uri.startswith("data:") or "PRIVATE KEY" in uri:
        raise InvalidConfig(f"{field}: put the key into a file on the workers, and give file:///path")


def encrypting(names: Sequence[str], uri: str) -> dict[str, Any]:
    """Return what settings of a producer have that encrypts with a public key; empty without names."""
    return {"encryption_keys": tuple(names), "crypto_key_reader": UriKeyReader(uri)} if names else {}


def decrypting(uri: str, action: str, *, is_ordered: bool) -> dict[str, Any]:
    """Return what settings of a consumer have that decrypts with a private key, and loses nothing for the want of it.

    Args:
        uri: of the key; empty for none.
        action: FAIL, DISCARD or CONSUME.
        is_ordered: with FAIL nothing behind an entry that cannot be decrypted may be read before it is.
    """
    settings: dict[str, Any] = {"crypto_failure_action": action}
    if uri:
        settings["crypto_key_reader"] = UriKeyReader(uri)
    if is_ordered and action == "FAIL":
        settings["on_undecryptable"] = lambda topic, position, why: None
    return settings


def connected(service_url: str, use: Callable[[Client], _T]) -> tuple[Client, _T]:
    """Return a client and what was opened with it; the client is closed if that fails.

    Raises:
        Retry: the cluster is away, or refuses.
    """
    client = Client(service_url, ClientConfig(operation_timeout_s=OPERATION_S, backoff_max_ms=1000))
    try:
        return client, use(client)
    except BaseException as error:
        client.close()
        if isinstance(error, MagnetarError) and not isinstance(error, InvalidConfig):
            raise away(service_url, error) from error
        raise


def away(service_url: str, error: MagnetarError | str) -> Retry:
    """Return the error that says that the cluster is away, or refuses."""
    if isinstance(error, str):
        return Retry(f"{service_url}: {error}")
    remedy = ""
    if isinstance(error, AuthenticationError | AuthorizationError):
        remedy = "; this connector has no token: let it in by its address, or through a proxy"
    return Retry(f"{service_url}: {type(error).__name__}: {error}{remedy}")
