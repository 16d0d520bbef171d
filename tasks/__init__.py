"""Tasks with an owner, the one place of the package where asyncio tasks are made; retries, and limited waits."""

from .fair_lock import FairLock
from .retry import Backoff, Retry
from .supervised import TaskSet, awaited_elsewhere, log_failure, race
from .waiting import call_in, settle, within

__all__ = [
    "Backoff",
    "FairLock",
    "Retry",
    "TaskSet",
    "awaited_elsewhere",
    "call_in",
    "log_failure",
    "race",
    "settle",
    "within",
]
