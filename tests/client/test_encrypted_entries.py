"""The queue of a consumer stands still while a key is looked for, and loses and exchanges nothing."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st
from magnetar.client.consumers.encrypted_entries import EncryptedEntries
from magnetar.client.consumers.received import DamagedEntry, ReceivedEntry
from magnetar.errors import CryptoError
from magnetar.wire.pulsar_api_pb2 import EncryptionKeys, MessageMetadata

CLEAR = ""
KEYS = ("a", "b", "missing", "lost")


class Keys:
    """Two keys of four, which are found in other threads only."""

    def __init__(self) -> None:
        self.known: set[str] = set()
        self.asked: list[str] = []
        self.loops_thread = threading.get_ident()

    def is_ready(self, metadata: MessageMetadata) -> bool:
        return metadata.encryption_keys[0].key in self.known

    def find_key(self, metadata: MessageMetadata) -> CryptoError | None:
        assert threading.get_ident() != self.loops_thread
        name = metadata.encryption_keys[0].key
        self.asked.append(name)
        if name in ("missing", "lost"):
            return CryptoError(f"no key {name}")
        self.known.add(name)
        return None

    def decrypt(self, metadata: MessageMetadata, body: bytes) -> bytes:
        assert metadata.encryption_keys[0].key in self.known
        return body[::-1]


def entry_of(number: int, key: str) -> ReceivedEntry:
    body = b"%d" % number
    metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=1)
    if key:
        metadata.encryption_keys.append(EncryptionKeys(key=key, value=key.encode()))
        metadata.encryption_param = b"n" * 12
        body = body[::-1]
    return ReceivedEntry((7, number), "t", metadata, 0, 1, (body, 0, 1000))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from((CLEAR, *KEYS)), max_size=12), st.booleans())
def test_entries_come_in_order_and_those_without_a_key_are_refused_or_come_as_they_are(
    keys: list[str], as_they_are: bool
) -> None:
    asyncio.run(drain(keys, as_they_are))


async def drain(keys: list[str], as_they_are: bool) -> None:
    entries = deque(entry_of(number, key) for number, key in enumerate(keys))
    reader, found, refused = Keys(), asyncio.Event(), cast("list[int]", [])

    def refuse(entry: ReceivedEntry, error: DamagedEntry) -> None:
        assert "no key" in str(error)
        refused.append(entry.position[1])

    opening = EncryptedEntries(cast(Any, reader), refuse if as_they_are else None, refuse, found.set)
    given_out: list[tuple[int, bytes]] = []
    while entries:
        entry = opening.pop(entries)
        if entry is not None:
            given_out.append((entry.position[1], entry.payloads[0]))
        elif entries:
            assert opening.is_waiting
            assert opening.pop(entries) is None, "nothing overtakes it"
            async with asyncio.timeout(10):
                await found.wait()
            found.clear()
    without = [number for number, key in enumerate(keys) if key in ("missing", "lost")]
    assert refused == without
    wanted = [number for number in range(len(keys)) if as_they_are or number not in without]
    assert [number for number, _ in given_out] == wanted
    for number, body in given_out:
        plain = b"%d" % number
        assert body == (plain[::-1] if number in without else plain)
    assert all(reader.asked.count(key) <= 1 for key in ("a", "b"))
