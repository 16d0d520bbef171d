"""The interface that all runtimes implement."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from ..instance.examination.package import Question
from ..instance.examination.source import Source, SourceQuestion
from ..instance.spec import InstanceSpec
from ..instance.system_user import SystemUser
from ..wire.functions_pb2 import FunctionStatus, MetricsData


class Instance(Protocol):
    """A started instance; it has ended when `wait` returns."""

    async def status(self) -> FunctionStatus:
        """Return the instance's own status; the manager fills in numRestarts and workerId."""

    async def metrics(self) -> MetricsData:
        """Return the instance's counters."""

    async def stop(self, grace_s: float) -> None:
        """Stop the instance after the current message if possible, or forcibly after ``grace_s``."""

    def leftover(self) -> str:
        """Describe in one line what remains running of an ended instance; empty if nothing does."""

    def death(self) -> str:
        """Return how the process of an ended instance died, or an empty string if it exited as expected."""

    async def wait(self) -> str:
        """Wait until the instance has ended, and return the reason, possibly with a traceback; empty if it was stopped.

        Cancellation: safe.
        """


@runtime_checkable
class Triggered(Protocol):
    """An instance that is triggered to process its current backlog."""

    async def begin_run(self, run_id: str) -> None:
        """Start a run; its progress is in the status.

        Raises:
            RunNotYet: the run can be started shortly.
            RunRefused: another run or a failure prevents it.
        """


@runtime_checkable
class Examines(Protocol):
    """A runtime that can examine packages in a separate process."""

    async def examine(self, question: Question, user: SystemUser | None = None) -> str | None:
        """Return in one line why the code cannot work on any worker, or an empty string if no reason was found.

        Cancellation: safe.

        Args:
            question: question about the code.
            user: user that loads it; None for this process's user.

        Returns:
            None if this could not be determined: it took too long, or the examining process died.
        """

    async def read_source(self, question: SourceQuestion, user: SystemUser | None = None) -> Source | None:
        """Return the result of reading a package's source, or None if the machine is too busy.

        Cancellation: safe.

        Args:
            question: question about the source.
            user: user that reads it; None for this process's user.

        Raises:
            PackageError: something is missing or invalid, or the source is too expensive to read.
        """


class Runtime(Protocol):
    """Starts instances."""

    async def warm_up(self) -> None:
        """Prepare resources that the first instance would otherwise have to wait for."""

    async def start(self, spec: InstanceSpec) -> Instance:
        """Start an instance; errors inside it are returned by `Instance.wait`.

        Raises:
            MagnetarError: the instance could not be started.
        """

    async def close(self) -> None:
        """Stop all instances and the processes that serve them."""
