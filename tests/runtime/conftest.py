"""Fixtures for tests of runtimes."""

from __future__ import annotations

from tests.support.instances import any_runtime, client, make_spec, server, topic

__all__ = ["any_runtime", "client", "make_spec", "server", "topic"]
