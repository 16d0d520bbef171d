"""RSA key pairs in PEM files, for encrypted messages."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulsar
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from magnetar.client import FileKeyReader
from magnetar.wire.functions_pb2 import CryptoSpec


@dataclass(frozen=True)
class Pair:
    """The PEM files of a key pair."""

    public: Path
    private: Path

    @property
    def reader(self) -> FileKeyReader:
        return FileKeyReader(self.public, self.private)

    @property
    def official(self) -> pulsar.CryptoKeyReader:
        return pulsar.CryptoKeyReader(str(self.public), str(self.private))

    @property
    def paths(self) -> dict[str, str]:
        """Arguments of `pulsar.CryptoKeyReader`."""
        return {"public_key_path": str(self.public), "private_key_path": str(self.private)}

    def spec(self, reader: str = "pulsar.CryptoKeyReader", **settings: Any) -> CryptoSpec:
        """Return the record of a cryptoConfig with this key under the name ``k``."""
        values: dict[str, Any] = {
            "cryptoKeyReaderClassName": reader,
            "cryptoKeyReaderConfig": json.dumps(self.paths),
            "producerEncryptionKeyName": ["k"],
        }
        return CryptoSpec(**values | settings)

    def copy_to(self, other: Pair) -> None:
        """Copy these keys to the files of another pair."""
        other.public.write_bytes(self.public.read_bytes())
        other.private.write_bytes(self.private.read_bytes())


def write_pair(directory: Path, name: str, key: Any = None) -> Pair:
    """Write the files of a key pair, which is a new RSA pair by default."""
    key = key or rsa.generate_private_key(65537, 2048)
    pair = Pair(directory / f"{name}-public.pem", directory / f"{name}-private.pem")
    pair.private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    pair.public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return pair
