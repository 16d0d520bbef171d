"""Storage: journal, ledgers and cursors, behind a small disk interface."""

from .config import StorageConfig
from .cursor import Cursor, MemoryCursor
from .disk import Disk, LocalDisk
from .failures import Congested, DamagedFile, DiskFailure
from .ledger import LedgerInfo
from .position import EARLIEST, Position, StoredEntry
from .store import Storage, StorageStatistics
from .topic_log import TopicLog

__all__ = [
    "EARLIEST",
    "Congested",
    "Cursor",
    "DamagedFile",
    "Disk",
    "DiskFailure",
    "LedgerInfo",
    "LocalDisk",
    "MemoryCursor",
    "Position",
    "Storage",
    "StorageConfig",
    "StorageStatistics",
    "StoredEntry",
    "TopicLog",
]
