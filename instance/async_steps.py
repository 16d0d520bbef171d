"""Run async functions with one result per entry: an entry's calls run concurrently and are awaited together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from .async_calls import AsyncCall, CallRunner, OneCall, close_loop, key_of
from .batch_call import Results
from .function_thread import FunctionThread, Source, Steps
from .generator_call import GATHERED_BYTES_MAX, GATHERED_MAX, too_many_outputs
from .loop_watch import LoopWatch
from .unit import Unit


class AsyncSteps:
    """Calls an async function on units; `steps` is a `function_thread.Calls.steps`."""

    def __init__(
        self,
        call: AsyncCall,
        loop: asyncio.AbstractEventLoop,
        limit: int,
        watch: LoopWatch,
        take: Callable[[OneCall], None],
        *,
        in_order: bool,
    ) -> None:
        """Create a caller of an async function.

        Args:
            call: caller of the function.
            loop: the function's event loop, closed by `close`.
            limit: maximum number of concurrent calls.
            watch: detects calls that block the loop.
            take: called with each call, in message order, when all have ended.
            in_order: whether messages are processed one at a time.
        """
        self._call = call
        self._loop = loop
        self._limit = limit
        self._watch = watch
        self._take = take
        self._in_order = in_order
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Make the loop check for a stop request (from any thread)."""
        with suppress(RuntimeError):  # closed
            self._loop.call_soon_threadsafe(self._woken.set)

    def close(self) -> None:
        """Close the loop, on the function's thread."""
        close_loop(self._loop)

    def steps(self, thread: FunctionThread, source: Source, unit: Unit) -> Steps:
        """Call the function on all messages of a unit; yield once, or not at all if the thread was stopped.

        Raises:
            BaseException: a call raised an exception that ends the instance.
        """
        calls = [
            OneCall(unit, position, source.topic if self._in_order else key_of(entry, index), source.serde)
            for position, (entry, index) in enumerate(unit.places())
        ]
        with self._watch.watching(self._loop):
            self._loop.run_until_complete(self._run(thread, calls))
        if any(call.is_given_up or not call.is_over for call in calls):
            return
        for call in calls:
            self._take(call)
        outputs: list[bytes | None] = [output for call in calls for output in call.outputs]
        failures = [call.failure for call in calls if call.failure is not None]
        results = Results(outputs, failures, [len(call.outputs) for call in calls])
        yield 0, results, sum(call.busy_s for call in calls)

    async def _run(self, thread: FunctionThread, calls: list[OneCall]) -> None:
        left, messages, size = len(calls), 0, 0
        woken = self._woken

        def ended(call: OneCall) -> None:
            nonlocal left
            left -= 1
            if not left or runner.fatal is not None:
                woken.set()

        def made(call: OneCall) -> None:
            nonlocal messages, size
            messages += 1
            size += len(call.outputs[-1])
            if messages > GATHERED_MAX or size > GATHERED_BYTES_MAX:
                raise too_many_outputs()

        runner = CallRunner(self._call, self._limit, ended, made)
        for call in calls:
            runner.add(call)
        runner.start()
        while left and runner.fatal is None and not thread.is_stopping:
            await woken.wait()
            woken.clear()
        if left:
            await runner.end(thread.grace_s)
        if runner.fatal is not None:
            raise runner.fatal
