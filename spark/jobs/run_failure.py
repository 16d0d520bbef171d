"""Errors that end a run, and their texts for its status."""

from __future__ import annotations

import re
from pickle import PicklingError
from typing import TYPE_CHECKING

from ...errors import MagnetarError
from ...instance.stats import format_error
from .spark_job import told

if TYPE_CHECKING:
    from .plans import Plan

_OWN_ERROR = re.compile(r"^magnetar\.errors\.(\w+: .*)$", re.MULTILINE)


class RunCancelled(Exception):
    """The run was cancelled."""


class RunFailed(Exception):
    """The run cannot go on.

    Attributes:
        is_user_error: the function raised.
    """

    def __init__(self, text: str, is_user_error: bool = False) -> None:
        super().__init__(text)
        self.is_user_error = is_user_error


def failed_with(plan: Plan, text: str, is_user_error: bool = False) -> RunFailed:
    """Return the failure of a run whose plan is kept, which the text is to say too."""
    return RunFailed(
        f"{text}\nplan {plan.number} is kept: the next run begins with it and repeats nothing that is stored; functions"
        " reset-cursor gives it up",
        is_user_error,
    )


def failed_job(plan: Plan, error: Exception, what: str, *, runs_user_code: bool) -> RunFailed:
    """Return what an error out of a plan's job means.

    Args:
        plan: whose job it was.
        error: of Spark, of ours, or whatever user code raises.
        what: the function's name, for its user.
        runs_user_code: in the job itself, so that what is not ours is the function's.
    """
    is_ours = isinstance(error, MagnetarError)
    is_of_spark = hasattr(error, "java_exception") or type(error).__module__.startswith(("pyspark", "py4j"))
    text = told(error) if is_of_spark or is_ours else format_error(error)
    if isinstance(error, PicklingError):
        text = f"what {what} gives to Spark cannot be pickled: {error}; make it inside of what Spark calls"
    if is_of_spark and (ours := _OWN_ERROR.search(text)):
        return failed_with(plan, ours[1])  # raised where entries are read or rows are written
    return failed_with(plan, text, runs_user_code and not is_ours)
