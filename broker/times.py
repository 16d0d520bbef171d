"""Times as Pulsar's JSON shows them."""

from __future__ import annotations

from datetime import UTC, datetime


def iso_time(time_ms: int) -> str:
    """Return a time as Java's Instant prints it."""
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds" if time_ms % 1000 else "seconds").replace("+00:00", "Z")


def iso_now() -> str:
    """Return the present, for "connected since"."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")
