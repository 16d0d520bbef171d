"""Where `pulsar-admin` sees another answer of our broker, on purpose, each with its reason."""

from __future__ import annotations

from tests.clients.admin_answers import Answer

DIFFERENT: dict[str, tuple[Answer, str]] = {}
"""Our answer and the reason, by command."""
