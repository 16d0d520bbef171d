"""Tasks with an owner, the one place of the package where asyncio tasks are made, and retries."""

from .retry import Backoff, Retry
from .supervised import TaskSet, awaited_elsewhere, log_failure, race

__all__ = ["Backoff", "Retry", "TaskSet", "awaited_elsewhere", "log_failure", "race"]
