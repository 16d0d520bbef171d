"""Flags of `produce` and `consume` for message encryption."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from ..failure import Failure


def producer_encryption(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ProducerConfig settings of ``--encryption-key-name`` and ``--encryption-key-value``; empty if unset.

    Raises:
        Failure: only one of them is set.
    """
    names, value = flags["encryption_key_name"], flags["encryption_key_value"]
    if bool(names) != (value is not None):
        missing = "--encryption-key-value" if names else "--encryption-key-name"
        raise Failure(f"{missing} is missing: encryption requires both the key name and the public key")
    if not names:
        return {}
    from ...client.encryption.keys import UriKeyReader

    return {"encryption_keys": names, "crypto_key_reader": UriKeyReader(value)}


private_key_option = click.option(
    "-ekv",
    "--encryption-key-value",
    "private_key",
    metavar="URI",
    help="Private key, if they are encrypted: file:///path/of/key.pem or data:application/x-pem-file;base64,…",
)


def decrypting(private_key: str | None) -> dict[str, Any]:
    """Return the settings of a ConsumerConfig or ReaderConfig that decrypts all messages or raises CryptoError."""
    settings: dict[str, Any] = {"on_undecryptable": lambda *_: None}
    if private_key is not None:
        from ...client.encryption.keys import UriKeyReader

        settings["crypto_key_reader"] = UriKeyReader(private_key)
    return settings


def consumer_encryption(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ConsumerConfig settings of ``--encryption-key-value`` and ``--crypto-failure-action``."""
    settings: dict[str, Any] = {"crypto_failure_action": flags["crypto_failure_action"]}
    if flags["encryption_key_value"] is not None:
        from ...client.encryption.keys import UriKeyReader

        settings["crypto_key_reader"] = UriKeyReader(flags["encryption_key_value"])
    return settings
