"""Storage engine: journal, ledgers and cursors on top of a small disk interface."""

from ...wire.position import EARLIEST, Position
from .config import StorageConfig
from .cursors.cursor import Cursor, MemoryCursor
from .disk.disk import Disk, LocalDisk
from .disk.failures import Congested, DamagedFile, DiskFailure
from .entry import LedgerInfo, StoredEntry
from .store import Storage
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
    "StoredEntry",
    "TopicLog",
]
