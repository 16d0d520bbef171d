"""Decrypts the encrypted entries of one consumer as they leave its queue.

Design: a key reader may read a file or call a server, which must not block the event loop. So the queue pauses at an
entry whose key is not cached while another thread calls the key reader. Later entries wait behind it; clearing the
queue still works. Keys are cached: the reader is called once per data key, and at most once per second for a key that
it failed to find.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...errors import CryptoError
from .received import DamagedEntry, ReceivedEntry

if TYPE_CHECKING:
    from ..encryption.decryption import Decryption

REFUSED_S = 1.0
"""Wait before a failed key reader is called again for the same key."""


class EncryptedEntries:
    """Decrypts entries at the head of a queue; used on the event loop.

    Attributes:
        is_waiting: whether the key lookup of the entry at the head is in progress.
    """

    __slots__ = (
        "_announce",
        "_asked",
        "_decryption",
        "_error",
        "_loop",
        "_refuse",
        "_refused",
        "_refused_until_s",
        "_take_as_is",
        "is_waiting",
    )

    def __init__(
        self,
        decryption: Decryption | None,
        take_as_is: Callable[[ReceivedEntry, DamagedEntry], None] | None,
        refuse: Callable[[ReceivedEntry, DamagedEntry], None],
        announce: Callable[[], None],
    ) -> None:
        """Create a filter for one consumer's queue.

        Args:
            decryption: the decryption keys, or None.
            take_as_is: called with an entry that is delivered although it cannot be decrypted; None rejects such
                entries.
            refuse: called with an entry that cannot be decrypted and has left the queue.
            announce: called when the queue resumes.
        """
        self.is_waiting = False
        self._decryption = decryption
        self._take_as_is = take_as_is
        self._refuse = refuse
        self._announce = announce
        self._loop = asyncio.get_running_loop()
        self._asked: ReceivedEntry | None = None  # the entry of the last key lookup
        self._error: CryptoError | None = None  # the error if that failed
        self._refused: dict[tuple[bytes, ...], CryptoError] = {}  # by the encrypted data keys of its entry
        self._refused_until_s = 0.0

    def pop(self, entries: deque[ReceivedEntry]) -> ReceivedEntry | None:
        """Remove and decrypt the oldest entry of a queue; return None while the queue is empty or waiting for a key."""
        while entries and not self.is_waiting:
            entry = entries[0]
            if not entry.is_encrypted:
                return entries.popleft()
            if not self._has_looked_for_key(entry):
                return None
            entries.popleft()
            try:
                return self._decrypted(entry)
            except DamagedEntry as error:
                if self._take_as_is is not None:
                    self._take_as_is(entry, error)
                    return entry.undecrypted()
                self._refuse(entry, error)
        return None

    def _decrypted(self, entry: ReceivedEntry) -> ReceivedEntry:
        error, self._asked = self._error, None
        if self._decryption is None:
            entry.payloads  # noqa: B018  raises the error
            raise AssertionError("an encrypted entry was read")

        def refuse(*_: object) -> bytes:
            assert error is not None
            raise error

        return entry.decrypted(self._decryption.decrypt if error is None else refuse)

    def _has_looked_for_key(self, entry: ReceivedEntry) -> bool:
        """Return whether the key lookup of an entry is complete; if not, start it."""
        decryption = self._decryption
        if entry is self._asked or decryption is None:
            return True
        self._error = None
        if decryption.is_ready(entry.metadata):
            return True
        self._error = self._refused.get(_data_keys(entry)) if self._loop.time() < self._refused_until_s else None
        if self._error is not None:
            return True
        self.is_waiting, self._asked = True, entry
        self._loop.run_in_executor(None, decryption.find_key, entry.metadata).add_done_callback(self._found)
        return False

    def _found(self, answer: asyncio.Future[CryptoError | None]) -> None:
        self.is_waiting = False
        if answer.cancelled():
            self._asked = None
            return
        failure = answer.exception()
        self._error = answer.result() if failure is None else CryptoError(repr(failure))
        if self._error is not None and self._asked is not None:
            self._refused = {_data_keys(self._asked): self._error}
            self._refused_until_s = self._loop.time() + REFUSED_S
        self._announce()


def _data_keys(entry: ReceivedEntry) -> tuple[bytes, ...]:
    return tuple(key.value for key in entry.metadata.encryption_keys)
