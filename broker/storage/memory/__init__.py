"""An in-memory storage engine, for tests and for brokers without persistent data."""

from .store import MemoryStore

__all__ = ["MemoryStore"]
