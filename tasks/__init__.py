"""Owned tasks (the only place in the package that creates asyncio tasks), retries, and waits with a timeout."""

from .fair_pool import FairLock, FairPool
from .fair_queue import FairQueue
from .retry import Backoff, Retry
from .shares import Room, Shares
from .slices import Slices
from .supervised import TaskSet, awaited_elsewhere, log_failure, race
from .waiting import call_in, called_back, settle, within

__all__ = [
    "Backoff",
    "FairLock",
    "FairPool",
    "FairQueue",
    "Retry",
    "Room",
    "Shares",
    "Slices",
    "TaskSet",
    "awaited_elsewhere",
    "call_in",
    "called_back",
    "log_failure",
    "race",
    "settle",
    "within",
]
