"""Encryption of a producer's entries.

Design: all partitions of a producer share one data key, generated when the producer is created and renewed every
`RENEW_S` seconds on another thread, because the key reader may call a server for the public keys. Entries sent during
the renewal use the previous key.

Invariant: a pair of data key and nonce encrypts at most one entry.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ...errors import CryptoError
from ...tasks import call_in
from ...wire.pulsar_api_pb2 import EncryptionKeys, KeyValue, MessageMetadata
from .data_keys import DATA_KEY_BITS, NONCE_BYTES, TAG_BYTES, encrypted_key
from .keys import CryptoKeyReader

RENEW_S = 4 * 3600.0
RETRY_S = 60.0
"""Wait after a failed renewal before the next attempt."""

log = logging.getLogger(__name__)


class _DataKey(NamedTuple):
    """A data key in use, and its encrypted forms for consumers."""

    cipher: AESGCM
    keys: list[EncryptionKeys]


class Encryption:
    """Encrypts the entries of one producer. Must be created on an event loop; encrypts on any thread."""

    def __init__(
        self,
        names: Sequence[str],
        reader: CryptoKeyReader,
        *,
        sends_clear: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create an encryption without a data key; `open` generates the first.

        Args:
            names: names of the public keys; any one of their private keys can decrypt.
            reader: loads the public keys.
            sends_clear: send messages unencrypted while no data key is available.
            clock: returns the time in seconds.
        """
        self._names = tuple(names)
        self._reader = reader
        self._sends_clear = sends_clear
        self._clock = clock
        self._data_key: _DataKey | None = None
        self._due_s = float("inf")
        self._loop = asyncio.get_running_loop()

    @property
    def may_send_clear(self) -> bool:
        """Whether messages may be sent unencrypted."""
        return self._sends_clear

    async def open(self) -> None:
        """Generate the first data key.

        Cancellation: safe.

        Raises:
            CryptoError: a public key is missing or unusable, and unencrypted messages are not allowed.
        """
        try:
            self._data_key = await self._loop.run_in_executor(None, self._made)
        except CryptoError as error:
            if not self._sends_clear:
                raise
            log.warning("sending messages unencrypted: %s", error)
        self._due_s = self._clock() + (RETRY_S if self._data_key is None else RENEW_S)

    @property
    def overhead_bytes(self) -> int:
        """Upper bound on the bytes that encryption adds to an entry."""
        found = self._data_key
        return TAG_BYTES + NONCE_BYTES + 64 + (sum(key.ByteSize() + 8 for key in found.keys) if found else 0)

    def encrypt(self, metadata: MessageMetadata, body: bytes) -> bytes:
        """Return the encrypted body of an entry, and set the metadata fields that consumers need to decrypt it."""
        if self._clock() >= self._due_s:
            self._renew()
        found = self._data_key
        if found is None:
            return body
        nonce = os.urandom(NONCE_BYTES)
        del metadata.encryption_keys[:]
        metadata.encryption_keys.extend(found.keys)
        metadata.encryption_param = nonce
        return found.cipher.encrypt(nonce, body, None)

    def _renew(self) -> None:
        self._due_s = self._clock() + RETRY_S
        call_in(self._loop, self._begin_renewal)

    def _begin_renewal(self) -> None:
        def renewed(future: asyncio.Future[_DataKey]) -> None:
            if future.cancelled():
                return
            error = future.exception()
            if error is not None:
                kept = "sending messages unencrypted" if self._data_key is None else "using the previous one"
                log.warning("cannot renew the data key, %s: %s", kept, error)
                return
            self._data_key = future.result()
            self._due_s = self._clock() + RENEW_S

        self._loop.run_in_executor(None, self._made).add_done_callback(renewed)

    def _made(self) -> _DataKey:
        data_key = AESGCM.generate_key(DATA_KEY_BITS)
        keys = []
        for name in self._names:
            try:
                public = self._reader.get_public_key(name, {})
            except Exception as error:
                raise CryptoError(f"encryption key {name}: {error or type(error).__name__}") from error
            metadata = [KeyValue(key=key, value=value) for key, value in public.metadata.items()]
            encrypted = encrypted_key(data_key, public.key, name)
            keys.append(EncryptionKeys(key=name, value=encrypted, metadata=metadata))
        return _DataKey(AESGCM(data_key), keys)
