"""Assigns sequence ids to the entries that a task writes for a batch of a stream, so that each row is stored once.

No I/O.

Design: Spark guarantees that a batch (called an epoch here) that was planned but not committed is repeated under the
same number, but not what the sink has stored by then. The broker closes this gap: it keeps the highest sequence id of
each producer name across crashes, and drops entries whose lowest id is not higher. The broker's record is therefore the
sink's only state, with which nothing can disagree; commit and abort only log:

- **Who.** There is one producer name per query and task number. The query id is in the checkpoint, so it survives
  restarts. All attempts of a task share one name, which only one connection can use at a time: a speculative attempt
  waits, and a lost attempt that is still alive cannot send concurrently with its successor.
- **What.** A task's entries are counted in the order in which they become full, across all partitions of the topic. An
  entry's lowest sequence id is ``epoch | entry | 0`` and its highest is ``epoch | entry | digest``, with 29, 20 and 14
  bits. The digest covers all rows of the task up to the end of the entry, their destinations, and the number of
  partitions. The broker compares the lowest id and returns the highest, so the digest never affects which entries are
  dropped, and opening the producer reveals which rows were stored under its name.

Before it sends anything, a task opens its producers on all partitions and checks their highest ids (`EpochChain`):

====================================================  ==================================================================
event                                                 effect
====================================================  ==================================================================
the commit of an epoch is lost after its rows are     the epoch is repeated and creates the same entries; the broker
stored, or its driver, task or broker dies            drops the entries that it has
it is repeated with other rows, in another order,     the digests differ, or a stored entry is not created again:
with fewer rows, or after partitions were added       `RowsDiffer`, before anything else is sent
the checkpoint is outdated or a copy, or a second     the broker has a later epoch: `CheckpointBehind`, before anything
query uses the same names                             is sent. In the same epoch, the digests differ
the checkpoint is deleted                             the query has a new id: everything is rewritten, as requested.
                                                      With a fixed ``producer.name.prefix``: `CheckpointBehind`
a task has no rows in an epoch, or a partition gets   ids have gaps, which is harmless; the task still checks whether an
none                                                  earlier attempt stored anything
the number of tasks differs from the previous epoch   names are permanent; an unused name keeps its highest id, which is
                                                      lower than those of later epochs
====================================================  ==================================================================

The following is documented as not detected: a name that the broker has forgotten (after six hours without a producer),
a digest that is equal by chance (1 in 16,384), and an epoch that is repeated with fewer tasks, if the missing tasks had
not stored anything. The check therefore does not replace a deterministic order (`sink_options`), but detects a
nondeterministic one. By then, earlier entries may already be stored on other partitions.

Rejected alternatives: sequence ids by row (differences would go unnoticed); producer names by epoch (brokers would keep
thousands of names); a separate topic that records finished epochs (a second state, and a round trip per epoch);
skipping entries that the broker reports (Pulsar reports accepted entries, which may still fail to be stored).
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
"""Size of batch numbers; sufficient for three years at five batches per second."""
ENTRY_BITS = 20
DIGEST_BITS = 14
MAX_EPOCH = (1 << EPOCH_BITS) - 1
MAX_ENTRIES = 1 << ENTRY_BITS
"""Maximum number of entries per task and epoch: a billion rows or 128 GiB."""


class RowsDiffer(MagnetarError):
    """A repeated task produced rows that differ from those stored before."""


class CheckpointBehind(MagnetarError):
    """The topic has later batches of a query than its checkpoint."""


class EntryNumber(NamedTuple):
    """Content of an entry's highest sequence id.

    Attributes:
        epoch: number of the batch.
        entry: number of the entry in its task, starting at 0.
        digest: digest of the task's rows up to the end of the entry.
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
    """Sequence ids with which an entry is published."""

    lowest: int
    highest: int


class EpochChain:
    """The entries of a task attempt, compared with the entries stored by earlier attempts."""

    def __init__(self, name: str, epoch: int, partitions: int, stored: Mapping[str, int]) -> None:
        """Start an attempt.

        Args:
            name: producer name.
            epoch: number of the batch.
            partitions: number of partitions of the topic, 0 if it is not partitioned.
            stored: last sequence id of the producer name, or -1, by full partition name.

        Raises:
            CheckpointBehind: a later epoch is already stored.
            MagnetarError: the epoch number is too large.
        """
        if not 0 <= epoch <= MAX_EPOCH:
            raise MagnetarError(
                f"batch {epoch} exceeds {MAX_EPOCH}, the highest batch number that fits into a sequence id: continue"
                " with a new checkpoint"
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
                    " the checkpoint is old, copied or deleted, or another query uses the same producer names:"
                    " continue from"
                    " the newest checkpoint, or start over with a new checkpoint and producer.name.prefix"
                )
            if last.epoch == epoch:
                self._stored[last.entry].append((topic, last.digest))

    def add(self, topic: str, rows: RowEntry) -> SequenceIds:
        """Return the sequence ids of the next entry.

        Args:
            topic: full name of the entry's partition.
            rows: rows of the entry.

        Raises:
            RowsDiffer: an earlier attempt stored a different entry.
            MagnetarError: the batch has too many entries.
        """
        number = self._next
        if number >= MAX_ENTRIES:
            raise MagnetarError(
                f"producer {self._name} has more than {MAX_ENTRIES} entries in batch {self._epoch}; limit the batches"
                " of the source, for example with maxOffsetsPerTrigger, or split them into more tasks"
            )
        self._next += 1
        self._crc = _digest(self._crc, topic, rows)
        made = EntryNumber(self._epoch, number, self._crc & (1 << DIGEST_BITS) - 1)
        for stored_in, digest in self._stored.pop(number, ()):
            if (stored_in, digest) != (topic, made.digest):
                raise self._differs(f"entry {number} differs from the entry stored in {stored_in}")
        return SequenceIds(made._replace(digest=0).pack(), made.pack())

    def end(self) -> None:
        """Check that all entries stored by earlier attempts were produced again.

        Raises:
            RowsDiffer: a stored entry was not produced again.
        """
        for number, [(topic, _), *_] in self._stored.items():
            raise self._differs(f"only {self._next} entries were produced, but {topic} already holds entry {number}")

    def _differs(self, what: str) -> RowsDiffer:
        return RowsDiffer(
            f"batch {self._epoch} of producer {self._name} was repeated with different rows or in a different order:"
            f" {what}. Repeat the batch unchanged: the same partitions (option topic.partitions of the sink), the same"
            " tasks (minPartitions of the source), rows that depend only on the input, and sortBy where rows are"
            " shuffled; or set effectivelyOnce=false to allow duplicates"
        )


def _digest(before: int, topic: str, rows: RowEntry) -> int:
    """Return the digest of an entry and all entries before it."""
    payloads = rows.payloads
    crc = crc32(topic.encode(), before)
    crc = crc32(struct.pack(f"<{len(payloads)}I", *map(len, payloads)), crc)
    crc = crc32(b"".join(payloads), crc)
    for index, header in enumerate(rows.headers or ()):
        if header is not None:
            text = header.SerializeToString(deterministic=True)
            crc = crc32(struct.pack("<II", index, len(text)) + text, crc)
    return crc
