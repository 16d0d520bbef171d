"""Message properties with an internal meaning."""

from __future__ import annotations

KEPT_TOMBSTONE = "__magnetar_kept_tombstone"
"""Marks an empty message that compaction keeps although it deletes its key, as resuming readers must receive it."""
