"""Interface that every runtime implements."""

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
        """Return what the instance knows of itself; numRestarts and workerId are the manager's to fill."""

    async def metrics(self) -> MetricsData:
        """Return its counters."""

    async def stop(self, grace_s: float) -> None:
        """End the instance: after the message at hand where possible, by force when ``grace_s`` is over."""

    def leftover(self) -> str:
        """Return what of an ended instance could not be ended, in one line; empty if nothing."""

    def death(self) -> str:
        """Return how the process of an ended instance ended, if it ended by itself; empty for any other end."""

    async def wait(self) -> str:
        """Return why the instance ended, with a traceback where there is one; empty if it was stopped.

        Cancellation: safe.
        """


@runtime_checkable
class Triggered(Protocol):
    """An instance that runs on request, until the backlog of that moment is done."""

    async def begin_run(self, run_id: str) -> None:
        """Begin; how far it is stands in the status.

        Raises:
            RunNotYet: it will be able to in a moment.
            RunRefused: it cannot begin, because of another run or a failure.
        """


@runtime_checkable
class Examines(Protocol):
    """A runtime that can find out, in a process of its own, what is in a package."""

    async def examine(self, question: Question, user: SystemUser | None = None) -> str | None:
        """Return in one line why the code cannot work on any worker, empty if nothing is known against it.

        Cancellation: safe.

        Args:
            question: about the code.
            user: who loads it; None: this process's user.

        Returns:
            None if that could not be found out: it takes too long, or what examines it has ended.
        """

    async def read_source(self, question: SourceQuestion, user: SystemUser | None = None) -> Source | None:
        """Return what the source of a package says, None if the machine is too busy to find out.

        Cancellation: safe.

        Args:
            question: about the source.
            user: who reads it; None: this process's user.

        Raises:
            PackageError: something is missing or wrong, or the source costs too much to read.
        """


class Runtime(Protocol):
    """Starts instances."""

    async def warm_up(self) -> None:
        """Make ready what the first instance would otherwise wait for."""

    async def start(self, spec: InstanceSpec) -> Instance:
        """Start an instance; errors inside it are returned by `Instance.wait`.

        Raises:
            MagnetarError: nothing could be started.
        """

    async def close(self) -> None:
        """Stop all instances and whatever serves them."""
