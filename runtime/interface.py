"""The interface of all runtimes."""

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
        """Return its counters."""

    async def stop(self, grace_s: float) -> None:
        """End the instance: after the current message if possible, by force after ``grace_s``."""

    def leftover(self) -> str:
        """Return what could not be ended of an ended instance, in one line; empty if nothing."""

    def death(self) -> str:
        """Return how the process of an ended instance died, if it died unexpectedly; otherwise empty."""

    async def wait(self) -> str:
        """Return why the instance ended, with a traceback if there is one; empty if it was stopped.

        Cancellation: safe.
        """


@runtime_checkable
class Triggered(Protocol):
    """An instance that runs on request, until the backlog of that moment is done."""

    async def begin_run(self, run_id: str) -> None:
        """Begin a run; its progress is in the status.

        Raises:
            RunNotYet: it can begin in a moment.
            RunRefused: another run or a failure prevents it.
        """


@runtime_checkable
class Examines(Protocol):
    """A runtime that can examine packages in a separate process."""

    async def examine(self, question: Question, user: SystemUser | None = None) -> str | None:
        """Return in one line why the code cannot work on any worker, empty if no reason was found.

        Cancellation: safe.

        Args:
            question: question about the code.
            user: user that loads it; None for this process's user.

        Returns:
            None if it could not be determined: it took too long, or the examining process died.
        """

    async def read_source(self, question: SourceQuestion, user: SystemUser | None = None) -> Source | None:
        """Return what the source of a package contains, or None if the machine is too busy.

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
        """Prepare what the first instance would otherwise wait for."""

    async def start(self, spec: InstanceSpec) -> Instance:
        """Start an instance; errors inside it are returned by `Instance.wait`.

        Raises:
            MagnetarError: nothing could be started.
        """

    async def close(self) -> None:
        """Stop all instances and the processes that serve them."""
