"""Storage settings."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...errors import InvalidConfig

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageConfig:
    """Disk and memory limits of the storage.

    Attributes:
        journal_file_bytes: size of a journal file. Files are recycled after a checkpoint has released them.
        group_bytes: size at which a group accepts no more records; limits the duration of a write.
        queue_bytes: maximum size of the queue of unwritten records. Above it, storage is congested and the caller
            should stop reading from producers; at four times this size, appends are rejected.
        checkpoint_bytes: journal bytes after which a checkpoint moves entries to ledgers and releases journal files.
        checkpoint_interval_s: time after a change at which a checkpoint begins anyway; limits the replay at startup.
        unmoved_bytes: memory for entries that are not yet in ledger files, including the overhead of each entry. Above
            this limit, storage is congested; at half of it, a checkpoint begins.
        tail_cache_bytes: memory for the newest entries of all logs, for consumers without a backlog.
        read_cache_bytes: memory for entries read ahead from disk, for consumers with a backlog.
        partial_ack_bytes: memory for ack sets of partly acknowledged batches, shared by all subscriptions.
        max_ledger_entries: number of entries after which a log continues in a new ledger.
        max_ledger_bytes: ledger size after which a log continues in a new ledger.
        max_ledger_age_s: ledger age after which a log continues in a new ledger, so that retention can drop old data
            of topics with little traffic.
        lazy_flush_s: maximum delay before writing a change without a waiter, such as an ack without receipt.
        retry_s: time between recovery attempts after an I/O error.
        sync_delay_s: delay added to each sync, for benchmarks and tests that simulate a slow disk.
        salvage: whether to recover logs with journal records but no creation record, under generated names. If False,
            startup fails when the journal contains such logs.
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
                raise InvalidConfig(f"invalid {name}={getattr(self, name)}: expected at least 1")
        for name in ("checkpoint_interval_s", "max_ledger_age_s", "lazy_flush_s", "retry_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise InvalidConfig(f"invalid {name}={getattr(self, name)}: expected a finite, positive number")
        for name in ("tail_cache_bytes", "read_cache_bytes", "partial_ack_bytes", "sync_delay_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InvalidConfig(f"invalid {name}={getattr(self, name)}: expected a finite, non-negative number")
        if self.unmoved_bytes < self.checkpoint_bytes:
            raise InvalidConfig(
                f"invalid unmoved_bytes={self.unmoved_bytes}: expected at least"
                f" checkpoint_bytes={self.checkpoint_bytes}, or storage would be congested before its first checkpoint"
            )
