"""Message properties for internal use."""

from __future__ import annotations

KEPT_TOMBSTONE = "__magnetar_kept_tombstone"
"""Marks an empty message that compaction retains although it deletes its key, for readers that resume."""
