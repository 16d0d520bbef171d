"""`cryptoConfig` of an input or the producer: keys for decryption or encryption, and what to do if they are missing.

Keys are found by a class in the function's package, or by one of `READERS`, which read files on the worker. A record
contains the locations of keys, never the keys, because every user who can view the function can read its record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidConfig
from .table import OBJECT, TEXT, TEXTS, one_of, option, shown

PRODUCER_ACTIONS = ("FAIL", "SEND")
CONSUMER_ACTIONS = ("FAIL", "DISCARD", "CONSUME")
KEY_NAMES_MAX = 100
"""Each key costs an RSA operation per data key, and half a kilobyte per entry."""

FILES = "files"
URIS = "uris"
READERS: Mapping[str, str] = {
    "pulsar.CryptoKeyReader": FILES,
    "magnetar.client.FileKeyReader": FILES,
    "org.apache.pulsar.client.impl.DefaultCryptoKeyReader": URIS,
    "magnetar.client.NamedKeyReader": URIS,
}
"""Class names that need no class in the package, and the form of their config: files of one pair, or URIs by name."""
_FILES_CONFIG = ("public_key_path", "private_key_path")
_URIS_CONFIG = ("defaultPublicKey", "defaultPrivateKey", "publicKeys", "privateKeys")


@dataclass(frozen=True, slots=True, kw_only=True)
class CryptoConfig:
    """How messages of an input are decrypted, or outgoing messages encrypted."""

    key_reader: str | None = option(
        "cryptoKeyReaderClassName", TEXT, "Key reader, as module.Class, or one of the built-in readers for files.",
        record="cryptoKeyReaderClassName",
    )  # fmt: skip
    key_reader_config: Mapping[str, Any] | None = option(
        "cryptoKeyReaderConfig", OBJECT, "Arguments of the key reader, by name.", record="cryptoKeyReaderConfig"
    )
    encryption_keys: tuple[str, ...] = option(
        "encryptionKeys", TEXTS._replace(show=lambda names: list(names) or None, store=list, load=tuple),
        "Names of the public keys. Messages can be decrypted with the private key of any one of them.",
        unset=(), record="producerEncryptionKeyName",
    )  # fmt: skip
    producer_action: str | None = option(
        "producerCryptoFailureAction", one_of(*PRODUCER_ACTIONS),
        "Action if a public key is missing. FAIL: send no messages; SEND: send messages in clear text.",
        unset="FAIL", default="FAIL", record="producerCryptoFailureAction",
    )  # fmt: skip
    consumer_action: str | None = option(
        "consumerCryptoFailureAction", one_of(*CONSUMER_ACTIONS),
        "Action for messages that cannot be decrypted. FAIL: redeliver them; DISCARD: drop them; CONSUME: deliver them "
        "encrypted.",
        unset="FAIL", default="FAIL", record="consumerCryptoFailureAction",
    )  # fmt: skip


def check_crypto(config: CryptoConfig | None, where: str, *, is_of_producer: bool) -> None:
    """Reject a config without a reader, a producer's config without key names, and reader configs without keys.

    Args:
        config: the config, or None.
        where: path of the config, for error messages.
        is_of_producer: whether the config is for encryption.

    Raises:
        InvalidConfig: a field is invalid. The message contains the field and the expected value.
    """
    if config is None:
        return
    if not config.key_reader:
        raise InvalidConfig(
            f"CryptoKeyReader class name required: {where}.cryptoKeyReaderClassName: expected module.Class in the "
            f"package, or one of {', '.join(READERS)}"
        )
    if is_of_producer and not config.encryption_keys:
        raise InvalidConfig(
            f"Must provide encryption key name for crypto key reader: {where}.encryptionKeys: set the names of the "
            f"public keys"
        )
    if len(config.encryption_keys) > KEY_NAMES_MAX or not all(config.encryption_keys):
        raise InvalidConfig(
            f"invalid {where}.encryptionKeys: expected at most {KEY_NAMES_MAX} names, none of them empty"
        )
    for name, reason in _refused(config, is_of_producer=is_of_producer):
        raise InvalidConfig(f"{where}.{name}: {reason}")


def _refused(config: CryptoConfig, *, is_of_producer: bool) -> Iterator[tuple[str, str]]:
    reader, given = config.key_reader or "", config.key_reader_config or {}
    kind = READERS.get(reader)
    if kind is None:
        if "." not in reader.strip("."):
            yield (
                "cryptoKeyReaderClassName",
                f"invalid class {shown(reader)}: expected module.Class or one of {', '.join(READERS)}",
            )
        return
    known = _FILES_CONFIG if kind == FILES else _URIS_CONFIG
    for name, value in given.items():
        if name not in known:
            yield "cryptoKeyReaderConfig", f"{reader} does not support {shown(name)}: expected {', '.join(known)}"
        elif name in ("publicKeys", "privateKeys"):
            if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
                yield f"cryptoKeyReaderConfig.{name}", "must be a JSON object with a URI for each key name"
        elif not isinstance(value, str):
            yield f"cryptoKeyReaderConfig.{name}", "must be a string"
        if "rivate" in name and any(
            _holds_key(uri) for uri in (value.values() if isinstance(value, dict) else [value])
        ):
            yield (
                f"cryptoKeyReaderConfig.{name}",
                "a private key would be visible to all users who can view the function: store it in a file on the "
                "workers, and set file:///path",
            )
    for kind, is_needed in (("public", bool(config.encryption_keys)), ("private", not is_of_producer)):
        names = [name for name in known if kind in name.lower()]
        if is_needed and not any(given.get(name) for name in names):
            yield "cryptoKeyReaderConfig", f"{reader} has no {kind} key: set {' or '.join(names)}"


def _holds_key(uri: object) -> bool:
    return isinstance(uri, str) and (uri.startswith("data:") or "PRIVATE KEY" in uri)
