"""Encryption and decryption of data keys with RSA keys.

Source: encryption in Pulsar's clients, which is RSA with OAEP, SHA-1 and MGF1 with SHA-1; AES-256-GCM with a 12-byte
nonce, a 16-byte tag after the body, and no additional data.
"""

from __future__ import annotations

from functools import lru_cache

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, OAEP
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from ...errors import CryptoError

DATA_KEY_BITS = 256
NONCE_BYTES = 12
TAG_BYTES = 16
_AES_KEY_BYTES = (16, 24, 32)
# The padding protects a producer's random key; Pulsar's clients in all languages require SHA-1.
_PADDING = OAEP(MGF1(SHA1()), SHA1(), None)  # noqa: S303 (required by the format)


def encrypted_key(data_key: bytes, public_pem: bytes, name: str) -> bytes:
    """Return a data key encrypted with a public key.

    Raises:
        CryptoError: the public key is not a usable RSA key; the message names it.
    """
    try:
        found = load_pem_public_key(public_pem)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise CryptoError(f"encryption key {name}: not a public key in PEM format") from error
    if not isinstance(found, rsa.RSAPublicKey):
        raise CryptoError(f"encryption key {name}: {_only_rsa(found)}")
    try:
        return found.encrypt(data_key, _PADDING)
    except ValueError as error:
        raise CryptoError(f"encryption key {name}: {found.key_size} bits are too few: use 2048 or more") from error


def decrypted_key(encrypted: bytes, private_pem: bytes, name: str) -> bytes:
    """Return a data key decrypted with a private key.

    Raises:
        CryptoError: the private key is not an RSA key, or does not match the message; the error names it.
    """
    try:
        found = _private_key(private_pem)
    except (TypeError, ValueError, UnsupportedAlgorithm) as error:
        why = "the key is password-protected" if isinstance(error, TypeError) else "not a private key in PEM format"
        raise CryptoError(f"encryption key {name}: {why}") from error
    if not isinstance(found, rsa.RSAPrivateKey):
        raise CryptoError(f"encryption key {name}: {_only_rsa(found)}")
    try:
        data_key = found.decrypt(encrypted, _PADDING)
    except ValueError as error:
        raise CryptoError(f"encryption key {name}: the private key does not match the message") from error
    if len(data_key) not in _AES_KEY_BYTES:
        raise CryptoError(f"encryption key {name}: invalid data key length {len(data_key)} in the message")
    return data_key


@lru_cache(maxsize=16)
def _private_key(pem: bytes) -> PrivateKeyTypes:
    """Return a private key; cached because checking one takes tens of milliseconds."""
    return load_pem_private_key(pem, None)


def _only_rsa(found: object) -> str:
    kind = type(found).__name__.removesuffix("PublicKey").removesuffix("PrivateKey").lstrip("_")
    return f"unsupported key type {kind}: only RSA is supported"
