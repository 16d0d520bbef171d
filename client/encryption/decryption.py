"""Decryption of a consumer's entries."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ...errors import CryptoError
from ...wire.pulsar_api_pb2 import EncryptionKeys, MessageMetadata
from .data_keys import decrypted_key
from .keys import CryptoKeyReader

KEPT_S = 4 * 3600.0
"""How long a data key is cached before the private key is loaded again."""
KEPT_MAX = 1000
"""Maximum number of cached data keys per consumer; the least recently used is dropped first."""


class Decryption:
    """Decrypts the entries of one consumer and caches their data keys; thread-safe."""

    def __init__(self, reader: CryptoKeyReader | None, clock: Callable[[], float] = time.monotonic) -> None:
        """Create the decryption of a consumer.

        Args:
            reader: loads the private keys; if None, nothing can be decrypted.
            clock: returns the time in seconds.
        """
        self._reader = reader
        self._clock = clock
        self._lock = threading.Lock()
        self._known: OrderedDict[bytes, tuple[AESGCM, float]] = OrderedDict()  # by the encrypted key

    def decrypt(self, metadata: MessageMetadata, body: bytes) -> bytes:
        """Return the decrypted body of an entry.

        Raises:
            CryptoError: none of its keys can be used, or the body was modified.
        """
        cipher = self._cipher(metadata)
        try:
            return cipher.decrypt(metadata.encryption_param, body, None)
        except (InvalidTag, ValueError) as error:
            raise CryptoError("the body was modified, or encrypted with another key") from error

    def is_ready(self, metadata: MessageMetadata) -> bool:
        """Return whether `decrypt` will not call the key reader: the data key is cached, or no reader is configured."""
        return self._reader is None or self._kept(metadata) is not None

    def find_key(self, metadata: MessageMetadata) -> CryptoError | None:
        """Load an entry's data key for `decrypt`; return the error if that fails, else None. Blocking."""
        try:
            self._cipher(metadata)
        except CryptoError as error:
            return error
        return None

    def _kept(self, metadata: MessageMetadata) -> AESGCM | None:
        with self._lock:
            now_s = self._clock()
            for key in metadata.encryption_keys:
                found = self._known.get(key.value)
                if found is not None and now_s < found[1]:
                    self._known.move_to_end(key.value)
                    return found[0]
        return None

    def _cipher(self, metadata: MessageMetadata) -> AESGCM:
        kept = self._kept(metadata)
        if kept is not None:
            return kept
        if self._reader is None:
            raise CryptoError("the consumer has no crypto_key_reader")
        reasons = []
        for key in metadata.encryption_keys:
            try:
                cipher = AESGCM(self._data_key(self._reader, key))
            except CryptoError as error:
                reasons.append(str(error))
                continue
            with self._lock:
                self._known[key.value] = (cipher, self._clock() + KEPT_S)
                if len(self._known) > KEPT_MAX:
                    self._known.popitem(last=False)
            return cipher
        raise CryptoError("; ".join(reasons))

    @staticmethod
    def _data_key(reader: CryptoKeyReader, key: EncryptionKeys) -> bytes:
        try:
            private = reader.get_private_key(key.key, {pair.key: pair.value for pair in key.metadata})
        except Exception as error:
            raise CryptoError(f"encryption key {key.key}: {error or type(error).__name__}") from error
        return decrypted_key(key.value, private.key, key.key)
