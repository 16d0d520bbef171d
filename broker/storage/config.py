"""The settings of the storage, with units and reasons."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...errors import InvalidConfig

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageConfig:
    """Disk and memory limits of the storage.

    Attributes:
        journal_file_bytes: size of one journal file. Files are recycled once a checkpoint has released them.
        group_bytes: a group of this size accepts no further record; bounds the time of one write.
        queue_bytes: above this many bytes of queued records the storage is congested, and the caller should stop
            reading from its producers. At four times as much, appends are refused.
        checkpoint_bytes: journal bytes after which entries move to their ledgers and journal files are released.
        checkpoint_interval_s: the same after this time, if anything changed; bounds the replay at startup.
        unmoved_bytes: entries not yet in ledger files, which must stay in memory. Above this the storage is congested;
            at half of it a checkpoint begins. As in the caches, the overhead per entry counts.
        tail_cache_bytes: newest entries of all logs kept in memory for consumers that keep up.
        read_cache_bytes: entries read ahead from disk for consumers that catch up, for all logs together.
        partial_ack_bytes: ack sets of partly acknowledged batches, for all subscriptions together.
        max_ledger_entries: a ledger with this many entries is closed and the log continues in a new one.
        max_ledger_bytes: the same by size.
        max_ledger_age_s: the same by age, so that retention can drop old data of slow logs.
        lazy_flush_s: how long a change without a waiter (an acknowledgement without receipt) may stay unwritten.
        retry_s: time between recovery attempts after an I/O error.
        sync_delay_s: delay added to each sync; only for benchmarks and tests of slow disks.
        salvage: adopt, under generated names, logs that have journal records but no creation record; otherwise a
            startup that finds such logs is refused.
    """

    journal_file_bytes: int = 32 * MIB
    group_bytes: int = 4 * MIB
    queue_bytes: int = 64 * MIB
    checkpoint_bytes: int = 32 * MIB
    checkpoint_interval_s: float = 30.0
    unmoved_bytes: int = 160 * MIB
    tail_cache_bytes: int = 64 * MIB
    read_cache_bytes: int = 16 * MIB
    partial_ack_bytes: int = 64 * MIB
    max_ledger_entries: int = 50_000
    max_ledger_bytes: int = 256 * MIB
    max_ledger_age_s: float = 4 * 3600.0
    lazy_flush_s: float = 0.05
    retry_s: float = 1.0
    sync_delay_s: float = 0.0
    salvage: bool = False

    def __post_init__(self) -> None:
        """Reject invalid settings."""
        for name in (
            "journal_file_bytes",
            "group_bytes",
            "queue_bytes",
            "checkpoint_bytes",
            "unmoved_bytes",
            "max_ledger_entries",
            "max_ledger_bytes",
        ):
            if getattr(self, name) < 1:
                raise InvalidConfig(f"{name}={getattr(self, name)} must be at least 1")
        for name in ("checkpoint_interval_s", "max_ledger_age_s", "lazy_flush_s", "retry_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise InvalidConfig(f"{name}={getattr(self, name)} must be more than 0 and finite")
        for name in ("tail_cache_bytes", "read_cache_bytes", "partial_ack_bytes", "sync_delay_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InvalidConfig(f"{name}={getattr(self, name)} must not be negative, and finite")
        if self.unmoved_bytes < self.checkpoint_bytes:
            raise InvalidConfig(
                f"unmoved_bytes={self.unmoved_bytes} is less than checkpoint_bytes={self.checkpoint_bytes}: "
                "the storage would be congested before its first checkpoint"
            )
