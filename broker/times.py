"""Time formats used in Pulsar's JSON."""

from __future__ import annotations

from datetime import UTC, datetime


def iso_time(time_ms: int) -> str:
    """Return a time in the format of Java's Instant."""
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds" if time_ms % 1000 else "seconds").replace("+00:00", "Z")


def iso_now() -> str:
    """Return the current time, for example for "connected since"."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")
