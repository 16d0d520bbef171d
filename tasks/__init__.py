"""Tasks with an owner, the one place of the package where asyncio tasks are made; retries, and limited waits."""

from .fair_pool import FairLock, FairPool
from .fair_queue import FairQueue
from .retry import Backoff, Retry
from .shares import Room, Shares
from .slices import Slices
from .supervised import TaskSet, awaited_elsewhere, log_failure, race
from .waiting import call_in, settle, within

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
    "log_failure",
    "race",
    "settle",
    "within",
]
