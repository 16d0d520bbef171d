"""A storage engine that keeps everything in memory, for tests and for brokers that need to store nothing."""

from .store import MemoryStore

__all__ = ["MemoryStore"]
