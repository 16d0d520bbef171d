"""Properties of messages that have a meaning between our own parts."""

from __future__ import annotations

KEPT_TOMBSTONE = "__magnetar_kept_tombstone"
"""Of an empty message that compaction keeps, although it deletes its key: readers that resume need to learn of it."""
