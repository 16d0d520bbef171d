"""Publish results directly or after their commit, without reordering.

Invariant: a result that must be committed waits for all earlier direct results. It commits a position, up to which all
outputs must then be stored. After the first such result, none is sent directly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from ...errors import FencedByPosition, StateRefused
from ..core import InstanceCore
from ..endpoint_settings import output_bounds
from ..gate import Gate
from ..publish_request import Callbacks
from ..publish_request import Result as Published
from .work import Result

OUTPUT_MESSAGES_MAX = 100_000
OUTPUT_BYTES_MAX = 64 * 1024 * 1024


class ResultFlow:
    """Passes the results of one instance from the function's thread to publishing.

    Attributes:
        gate: limits the results in flight; the function's thread waits there.
    """

    def __init__(self, core: InstanceCore, commit: Callable[[Result], None]) -> None:
        """Create a flow of results.

        Args:
            core: the instance's core.
            commit: passes a result to the committer.
        """
        self.gate = Gate(output_bounds(core.spec).messages(OUTPUT_MESSAGES_MAX), OUTPUT_BYTES_MAX)
        self._core = core
        self._commit = commit
        self._callbacks = Callbacks(core.callback_failed)
        self._is_closed = False
        self._directly = 0  # number of unsettled direct results
        self._waiting: deque[Result] = deque()  # results to be committed after the direct ones

    def take(self, result: Result) -> None:
        """Publish or commit a result."""
        if self._is_closed:
            return  # the thread was abandoned
        if result.is_direct:
            self._directly += 1
            result.source.publish(result)
            return
        self._waiting.append(result)
        if not self._directly:
            self._commit_waiting()

    def _commit_waiting(self) -> None:
        while self._waiting:
            result = self._waiting.popleft()
            activation = result.source
            if not activation.accepts_commits:
                # The committed position would skip results that were given up.
                self._core.is_broken = True
                self._core.end(f"lost {activation.topic} to another instance, or the connection; restarting")
                return
            self._commit(result)

    def committed(self, results: Sequence[Result], error: BaseException | None) -> None:
        """Handle the outcome of a commit (on the committer's thread)."""
        self._core.mailbox.post(partial(self._publish, results, error))

    def _publish(self, results: Sequence[Result], error: BaseException | None) -> None:
        if self._is_closed:
            return
        if error is not None:
            self._core.is_broken = True
            self._core.end(_why_not_committed(results, error))
            return
        for result in results:
            result.source.publish(result)

    def left(self, results: Sequence[Result], is_settled: bool) -> None:
        """Release results that are settled or given up."""
        messages = size = 0
        for result in results:
            messages += result.messages
            size += result.size
            self._directly -= result.is_direct
            for request in result.published:
                self._callbacks.call(request, Published.Ok if is_settled else Published.AlreadyClosed)
        self.gate.leave(messages, size)
        if not self._directly and self._waiting:
            self._commit_waiting()

    def close(self) -> None:
        """Stop publishing."""
        self._is_closed = True
        self._callbacks.close()


def _why_not_committed(results: Sequence[Result], error: BaseException) -> str:
    where = "the outbox"
    if results:
        where = f"input {results[0].position} to {results[-1].position} of {results[0].source.topic}"
    if isinstance(error, FencedByPosition):
        return f"FENCED: {error}"
    hint = ""
    if isinstance(error, StateRefused):
        hint = "; later input waits for it: change the function, or publish smaller input batches"
    return f"cannot commit {where}: {type(error).__name__}: {error}{hint}"
