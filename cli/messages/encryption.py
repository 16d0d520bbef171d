"""The flags of `produce` and `consume` that encrypt and decrypt messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..failure import Failure


def producer_encryption(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a ProducerConfig gets of ``--encryption-key-name`` and ``--encryption-key-value``; empty for neither.

    Raises:
        Failure: one is missing.
    """
    names, value = flags["encryption_key_name"], flags["encryption_key_value"]
    if bool(names) != (value is not None):
        missing = "--encryption-key-value" if names else "--encryption-key-name"
        raise Failure(f"{missing} is missing: give the name of the key and where the public key is, or neither")
    if not names:
        return {}
    from ...client.encryption.keys import UriKeyReader

    return {"encryption_keys": names, "crypto_key_reader": UriKeyReader(value)}


def consumer_encryption(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a ConsumerConfig gets of ``--encryption-key-value`` and ``--crypto-failure-action``."""
    settings: dict[str, Any] = {"crypto_failure_action": flags["crypto_failure_action"]}
    if flags["encryption_key_value"] is not None:
        from ...client.encryption.keys import UriKeyReader

        settings["crypto_key_reader"] = UriKeyReader(flags["encryption_key_value"])
    return settings
