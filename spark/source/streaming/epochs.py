"""Numbers the entries that a task writes for one batch of a stream, so that each row is stored once. No I/O.

Design: Spark guarantees that a batch, called an epoch here, that was planned but not committed is run again under the
same number; it guarantees nothing about what the sink has stored by then. The broker does: it keeps the highest
sequence id of each producer name across crashes, and drops entries whose lowest id is not higher. So the broker's
record is the sink's only state, and nothing can disagree with it; commit and abort only report:

- **Who.** A producer name for each query and task number. The id of a query is in its checkpoint, so it is the same
  after a restart, and all attempts of a task share one name, which one connection can have at a time: a speculative
  attempt waits, and one that is lost but alive cannot send beside the next.
- **What.** A task's entries are counted in the order in which they are full, over all partitions of the topic. An
  entry's lowest sequence id is ``epoch | entry | 0``, its highest ``epoch | entry | digest``, of 29, 20 and 14 bits.
  The digest is of all rows of the task up to the end of that entry, where they went, and how many partitions there are.
  The broker compares the lowest and returns the highest, so the digest never decides what is dropped, and opening the
  producer reveals which rows were stored under it.

A task opens its producers on all partitions before it sends, and compares their highest ids (`EpochChain`):

====================================================  ==================================================================
event                                                 effect
====================================================  ==================================================================
the commit of an epoch is lost after its rows are     the epoch is run again and creates the same entries, and the
stored, or its driver, task or broker dies            broker drops those that it has
it is run again with other rows, another order, or    the digest differs, or a stored entry is not created again:
fewer, or after partitions were added                 `RowsDiffer`, before anything is sent after it
the checkpoint is an outdated copy or an old one, or  the broker has a later epoch: `CheckpointBehind`, before anything
a second query has the same name                      is sent. In the same epoch the digests differ
the checkpoint is deleted                             the query has a new id: everything is written again, as
                                                      requested. With its own ``producer.name.prefix``: as above
a task has no rows in an epoch, or a partition gets   numbers have gaps, which is fine; the task still checks whether
none                                                  an earlier attempt stored something there
an epoch has another number of tasks than the         names are permanent; an unused one keeps its highest number,
previous one                                          which is below those of later epochs
====================================================  ==================================================================

Not detected, as documented: a name that the broker has forgotten (six hours without a producer), a digest that is equal
by chance (1 in 16,384), and an epoch that is run again with fewer tasks of which none had stored anything. So this does
not replace a deterministic order (`sink_options`); it detects when the order was not. By then, entries before the one
that differs may be stored on other partitions.

Rejected: numbers by row (differing rows would go unnoticed); names by epoch (brokers would keep thousands of them); a
separate topic that records finished epochs (a second state, and a round trip per epoch); skipping entries that the
broker says it has (Pulsar returns what it has accepted, which may still fail to be stored).
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple
from zlib import crc32

from ....errors import MagnetarError
from ..entry_boundaries import RowEntry

EPOCH_BITS = 29
"""Enough for three years at five batches per second."""
ENTRY_BITS = 20
DIGEST_BITS = 14
MAX_EPOCH = (1 << EPOCH_BITS) - 1
MAX_ENTRIES = 1 << ENTRY_BITS
"""Per task and epoch: a billion rows, or 128 GiB."""


class RowsDiffer(MagnetarError):
    """A task that is run again produces other rows than it has stored."""


class CheckpointBehind(MagnetarError):
    """The topic has later batches of a query than its checkpoint."""


class EntryNumber(NamedTuple):
    """The content of an entry's highest sequence id.

    Attributes:
        epoch: number of the batch.
        entry: number of the entry in its task, from 0.
        digest: digest of the task's rows up to the entry's end.
    """

    epoch: int
    entry: int
    digest: int

    def pack(self) -> int:
        """Return the sequence id."""
        return (self.epoch << ENTRY_BITS | self.entry) << DIGEST_BITS | self.digest

    @classmethod
    def unpack(cls, sequence_id: int) -> EntryNumber:
        """Parse a sequence id; the inverse of `pack`."""
        number, digest = divmod(sequence_id, 1 << DIGEST_BITS)
        epoch, entry = divmod(number, MAX_ENTRIES)
        return cls(epoch, entry, digest)


class SequenceIds(NamedTuple):
    """The sequence ids with which an entry is published."""

    lowest: int
    highest: int


class EpochChain:
    """The entries of one attempt of one task, compared with entries stored by earlier attempts."""

    def __init__(self, name: str, epoch: int, partitions: int, stored: Mapping[str, int]) -> None:
        """Start an attempt.

        Args:
            name: producer name.
            epoch: number of the batch.
            partitions: number of the topic's partitions, 0 if it is not partitioned.
            stored: last sequence id of that name, -1 for none, by each partition's full name.

        Raises:
            CheckpointBehind: a later epoch is stored already.
            MagnetarError: the epoch number is too large.
        """
        if not 0 <= epoch <= MAX_EPOCH:
            raise MagnetarError(
                f"batch {epoch} is beyond {MAX_EPOCH}, the last that has a sequence id; go on with a new checkpoint"
            )
        self._name = name
        self._epoch = epoch
        self._next = 0
        self._crc = crc32(b"%d" % partitions)
        self._stored: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
        for topic, sequence_id in stored.items():
            if sequence_id < 0:
                continue
            last = EntryNumber.unpack(sequence_id)
            if last.epoch > epoch:
                raise CheckpointBehind(
                    f"{topic} already has batch {last.epoch} of producer {name}, so batch {epoch} cannot be written:"
                    " the checkpoint is old, copied or deleted, or another query has the same name: continue from"
                    " the newest checkpoint, or start over with a new checkpoint and producer.name.prefix"
                )
            if last.epoch == epoch:
                self._stored[last.entry].append((topic, last.digest))

    def add(self, topic: str, rows: RowEntry) -> SequenceIds:
        """Return the numbers of the next entry.

        Args:
            topic: full name of its partition.
            rows: rows of the entry.

        Raises:
            RowsDiffer: an earlier attempt has stored something else there.
            MagnetarError: there are no more numbers.
        """
        number = self._next
        if number >= MAX_ENTRIES:
            raise MagnetarError(
                f"producer {self._name} has more than {MAX_ENTRIES} entries in batch {self._epoch}; bound the batches"
                " of the source, for example by maxOffsetsPerTrigger, or cut them into more tasks"
            )
        self._next += 1
        self._crc = _digest(self._crc, topic, rows)
        made = EntryNumber(self._epoch, number, self._crc & (1 << DIGEST_BITS) - 1)
        for stored_in, digest in self._stored.pop(number, ()):
            if (stored_in, digest) != (topic, made.digest):
                raise self._differs(f"entry {number} is not the one that is stored in {stored_in}")
        return SequenceIds(made._replace(digest=0).pack(), made.pack())

    def end(self) -> None:
        """Check that everything stored by earlier attempts was produced again.

        Raises:
            RowsDiffer: it was not.
        """
        for number, [(topic, _), *_] in self._stored.items():
            raise self._differs(f"{self._next} entries are made, and {topic} holds entry {number}")

    def _differs(self, what: str) -> RowsDiffer:
        return RowsDiffer(
            f"batch {self._epoch} of producer {self._name} is run again with other rows, or in another order: {what}."
            " Have the batch as it was: the same partitions (option topic.partitions of the sink), the same tasks"
            " (minPartitions of the source), rows that follow from the input alone, and sortBy where they are shuffled;"
            " or give effectivelyOnce=false, and rows may be there twice"
        )


def _digest(before: int, topic: str, rows: RowEntry) -> int:
    """Return the digest of an entry and all before it."""
    payloads = rows.payloads
    crc = crc32(topic.encode(), before)
    crc = crc32(struct.pack(f"<{len(payloads)}I", *map(len, payloads)), crc)
    crc = crc32(b"".join(payloads), crc)
    for index, header in enumerate(rows.headers or ()):
        if header is not None:
            text = header.SerializeToString(deterministic=True)
            crc = crc32(struct.pack("<II", index, len(text)) + text, crc)
    return crc
