"""Where the keys of encrypted messages come from: an interface, and readers of files and of URIs.

A message is encrypted with a data key that its producer has made. The data key lies beside the message, encrypted with
the public key of each name that the producer has; a consumer reads the message with any one of the private keys.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote_to_bytes, urlsplit

from ...errors import InvalidConfig

KEY_BYTES_MAX = 1024 * 1024


@dataclass(frozen=True)
class EncryptionKey:
    """A public or private key.

    Attributes:
        key: PEM.
        metadata: travels with the messages beside the name; a reader of private keys is given it.
    """

    key: bytes
    metadata: Mapping[str, str] = field(default_factory=dict)


class CryptoKeyReader(Protocol):
    """Loads keys by name. A method that has no such key raises an exception, whose text becomes the reason.

    Methods are called in any thread. Producers load public keys when they are created and every four hours; consumers
    load private keys when they see a new data key, and deliver nothing meanwhile.
    """

    def get_public_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKey:
        """Return the key that data keys are encrypted with; ``metadata`` is empty."""

    def get_private_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKey:
        """Return the key that data keys are decrypted with; ``metadata`` is what came with the message."""


class FileKeyReader:
    """Has one pair of keys in two PEM files, whatever the name; the official clients call it their default reader."""

    def __init__(self, public_key_path: str | Path = "", private_key_path: str | Path = "") -> None:
        """Take the files; they are read when a key is asked for. One that is not needed may be left out."""
        self._public_path = public_key_path
        self._private_path = private_key_path

    def __repr__(self) -> str:
        return f"FileKeyReader({str(self._public_path)!r}, {str(self._private_path)!r})"

    def get_public_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKey:
        """Return the content of the public key's file.

        Raises:
            InvalidConfig: the file is missing or cannot be read.
        """
        return _read("public", self._public_path)

    def get_private_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKey:
        """Return what the file of the private key has; raises as `get_public_key`."""
        return _read("private", self._private_path)


class UriKeyReader:
    """Has one key, which a URI names or holds: ``file:///path``, ``data:application/x-pem-file;base64,…`` or a path."""

    def __init__(self, uri: str) -> None:
        self._uri = uri

    def get_public_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKey:
        """Return the key; raises as `FileKeyReader.get_public_key`."""
        return read_uri("public", self._uri)

    def get_private_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKey:
        """Return the key; raises as `FileKeyReader.get_public_key`."""
        return read_uri("private", self._uri)


class NamedKeyReader:
    """Has keys of several names, each at a URI as of `UriKeyReader`, and one pair for all other names.

    The arguments are called as the official Java client's default reader calls them.
    """

    def __init__(
        self,
        defaultPublicKey: str = "",
        defaultPrivateKey: str = "",
        publicKeys: Mapping[str, str] | None = None,
        privateKeys: Mapping[str, str] | None = None,
    ) -> None:
        """Take the URIs; they are read when a key is asked for."""
        self._public = (dict(publicKeys or {}), defaultPublicKey)
        self._private = (dict(privateKeys or {}), defaultPrivateKey)

    def get_public_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKey:
        """Return the key of a name; raises as `FileKeyReader.get_public_key`."""
        return read_uri("public", self._public[0].get(name, self._public[1]))

    def get_private_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKey:
        """Return the key of a name; raises as `FileKeyReader.get_public_key`."""
        return read_uri("private", self._private[0].get(name, self._private[1]))


def read_uri(kind: str, uri: str) -> EncryptionKey:
    """Return the ``public`` or ``private`` key at a URI.

    Raises:
        InvalidConfig: the URI is invalid or the key cannot be read; the text does not show the key.
    """
    scheme, _, rest = uri.partition(":")
    if scheme == "data":
        head, comma, content = rest.partition(",")
        try:
            if not comma:
                raise ValueError("missing comma")
            raw = unquote_to_bytes(content)
            return EncryptionKey(base64.b64decode(raw, validate=True) if head.endswith(";base64") else raw)
        except (ValueError, binascii.Error) as error:
            raise InvalidConfig(
                f"the {kind} key is not a valid data URI: {error}: expected data:application/x-pem-file;base64,…"
            ) from error
    if scheme == "file":
        return _read(kind, unquote_to_bytes(urlsplit(uri).path).decode(errors="surrogateescape"))
    return _read(kind, uri)


def _read(kind: str, path: str | Path) -> EncryptionKey:
    if not str(path):
        raise InvalidConfig(f"no file for the {kind} key: pass its path to the key reader")
    try:
        with Path(path).open("rb") as file:
            return EncryptionKey(file.read(KEY_BYTES_MAX))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InvalidConfig(f"the {kind} key {path} cannot be read: {why}") from error
