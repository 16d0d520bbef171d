"""Tasks with an owner: the one place of the package where asyncio tasks are made."""

from .supervised import TaskSet, awaited_elsewhere, log_failure, race

__all__ = ["TaskSet", "awaited_elsewhere", "log_failure", "race"]
