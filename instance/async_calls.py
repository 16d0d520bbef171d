"""Concurrent calls of an async function, one at a time per key, each with its own message in the context.

Design: the calls are tasks of an event loop on the function's thread. They start in message order, up to a limit, and
calls with the same key run one after the other. A context variable identifies the call of a task, including tasks and
coroutines that the function starts, so that all calls share one context object.

State changes of a call are private until it succeeds, and are only then merged with those of other calls
(`StateSession`); a failed call leaves no changes. A call reads the state as of its first access.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, Protocol

from ..api.serde import SerDe
from ..client.consumers.received import ReceivedEntry
from ..state.values import Reading
from ..tasks import TaskSet, awaited_elsewhere
from .batch_call import NOT_OF_ONE_MESSAGE, BatchCall, Blame, Failure, decode
from .publish_request import PublishRequest
from .state.session import StateSession
from .stopping import InstanceStopping
from .unit import Unit
from .values.writers import follow


class OneCall:
    """One call of an async function.

    Attributes:
        unit: unit of the message.
        position: the message's position in the unit.
        key: calls with equal keys run one after the other; None for no key.
        serde: decodes the message.
        owner: arbitrary value set by the creator of the call.
        outputs: encoded outputs; for a generator, only those not taken yet.
        size: size of the outputs in bytes.
        failure: why the call failed, with the message's position; None if it succeeded.
        is_skipped: whether the function was not called, because the message was given up.
        is_given_up: whether the call was cancelled because the thread is stopping; the message is redelivered.
        is_over: whether the call has ended, with any result.
        busy_s: duration in seconds.
        published: requests published through the context, if the owner decides when they are sent.
        tickets: tickets of requests published through the context.
        state: the call's view of the state; None before the first access.
    """

    __slots__ = (
        "busy_s", "failure", "is_given_up", "is_over", "is_skipped", "key", "outputs", "owner", "position",
        "published", "serde", "size", "state", "tickets", "unit",
    )  # fmt: skip

    def __init__(self, unit: Unit, position: int, key: object, serde: SerDe, owner: Any = None) -> None:
        self.unit = unit
        self.position = position
        self.key = key
        self.serde = serde
        self.owner = owner
        self.outputs: list[bytes] = []
        self.size = 0
        self.failure: Failure | None = None
        self.is_skipped = False
        self.is_given_up = False
        self.is_over = False
        self.busy_s = 0.0
        self.published: list[PublishRequest] = []
        self.tickets: list[Any] = []
        self.state: StateSession | None = None

    def fail(self, error: BaseException, blame: Blame = Blame.USER) -> None:
        """Record a failure."""
        self.failure = Failure(self.position, error, blame)
        self.take_outputs()

    def take_outputs(self) -> list[bytes]:
        """Return and clear the outputs."""
        outputs, self.outputs, self.size = self.outputs, [], 0
        return outputs


_current: ContextVar[OneCall | None] = ContextVar("call", default=None)


def current_call() -> OneCall | None:
    """Return the call that the current task belongs to, or None; the call may have ended."""
    return _current.get()


def key_of(entry: ReceivedEntry, index: int) -> object:
    """Return a message's ordering key, else its partition key, or None."""
    headers = entry.headers
    header = entry.metadata if headers is None else headers[index]
    return header.ordering_key or header.partition_key or None


class AsyncCall(BatchCall):
    """Caller of an async function or async generator function, including its SerDes.

    Attributes:
        limit_s: time limit of a call; None for no limit.
    """

    limit_s: float | None = None

    def __init__(self, function: Callable[..., Any], context: Any, output: SerDe) -> None:
        """Create a caller of ``function(value)``, or of ``function(value, context)`` with a context."""
        super().__init__(function, context, output)
        self.session = None if context is None else context.session

    async def process(self, call: OneCall, made: Callable[[OneCall], Any]) -> None:
        """Call the function on a message, and store the outputs or the failure in the call.

        Args:
            call: call to process.
            made: called after each output of a generator; its result is awaited unless it is None.

        Raises:
            BaseException: the call was cancelled, or raised an exception that concerns more than its message.
        """
        _current.set(call)
        failures: list[Failure] = []
        follow(call.serde, call.unit, call.position)
        (value,) = decode([call.unit.messages[call.position]], call.serde, failures)
        if failures:
            call.fail(failures[0].error, failures[0].blame)
            return
        began_s = time.perf_counter()
        limit = asyncio.timeout(self.limit_s)
        try:
            async with limit:
                returned = self._function(value) if self._context is None else self._function(value, self._context)
                if inspect.isawaitable(returned):
                    returned = await returned
                if hasattr(returned, "__aiter__"):
                    async for output in returned:
                        self._encode_one(call, output)
                        if call.outputs and (waiting := made(call)) is not None:
                            await waiting
                else:
                    self._encode_one(call, returned)
            if call.state is not None and self.session is not None:
                _merge(call.state, self.session)
        except (*NOT_OF_ONE_MESSAGE, asyncio.CancelledError):
            raise
        except BaseException as raised:  # see NOT_OF_ONE_MESSAGE
            if isinstance(raised, GeneratorExit) and not _is_on_loop():
                raise  # Python closes the coroutine of a closed loop
            error: BaseException = raised
            if limit.expired():
                error = TimeoutError(f"the call exceeded its limit of {self.limit_s:g} s (runTimeLimitMs)")
            call.fail(error)
        finally:
            call.busy_s = time.perf_counter() - began_s

    def _encode_one(self, call: OneCall, returned: Any) -> None:
        failures: list[Failure] = []
        (output,) = self.encode([returned], failures)
        if failures:
            raise failures[0].error
        if output is not None:
            call.outputs.append(output)
            call.size += len(output)


def _is_on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def branch_of(session: StateSession) -> StateSession:
    """Return a session for one call that reads from ``session`` and keeps its changes private."""
    return StateSession(lambda keys: Reading([session.get_state(key.decode()) for key in keys], 1))


def _merge(branch: StateSession, session: StateSession) -> None:
    """Merge all changes of a call into a session, or none if one is rejected."""
    branch.begin()
    changes = branch.take()
    if changes is None:
        return
    session.begin_call()
    try:
        for key, data in changes.values.items():
            if data is None:
                session.delete_state(key)
            else:
                session.put_state(key, data)
        for key, amount in changes.increments.items():
            session.incr_counter(key, amount)
    except BaseException:  # also if the instance stops while a counter is read
        session.undo()
        raise


class CallRecorder(Protocol):
    """Records calls after one has ended the process (`deaths.careful.CarefulCalls`)."""

    is_on: bool

    def is_alone(self, unit: Unit, position: int) -> bool:
        """Return whether no other message may be in flight with the one at a position."""

    def given_up(self, unit: Unit, position: int) -> Exception | None:
        """Return why the message at a position has been given up, or None."""

    def in_flight(self, unit: Unit, position: int, end: int) -> AbstractContextManager[None]:
        """Record the messages from ``position`` to before ``end`` as in flight."""


class CallRunner:
    """Runs calls on the event loop of the function's thread; not thread-safe.

    Attributes:
        fatal: error of a call that ends the instance, or None.
    """

    def __init__(
        self,
        call: AsyncCall,
        limit: int,
        ended: Callable[[OneCall], None],
        made: Callable[[OneCall], Any] = lambda call: None,
        skips: Callable[[OneCall], bool] = lambda call: False,
        careful: CallRecorder | None = None,
    ) -> None:
        """Create a runner of async calls.

        Args:
            call: caller of the function.
            limit: maximum number of concurrent calls.
            ended: called with each call that has ended, whatever the result.
            made: passed to `AsyncCall.process`.
            skips: called at the start of a call; if it returns true, the call ends without a result.
            careful: records calls after one has ended the process; None if such deaths are not counted.
        """
        self.fatal: BaseException | None = None
        self._call = call
        self._limit = limit
        self._ended = ended
        self._made = made
        self._skips = skips
        self._careful = careful
        self._alone: OneCall | None = None  # call that must run alone
        self._ready: deque[OneCall] = deque()
        self._behind: dict[object, deque[OneCall]] = {}  # calls waiting for a ready or running call of the same key
        self._owned = TaskSet("async calls")
        self._tasks: set[asyncio.Task[None]] = set()  # tasks of unfinished calls
        self._is_paused = False
        self._is_ending = False

    def add(self, call: OneCall) -> None:
        """Queue a call, to be started by `start` in order, as far as limit and keys allow."""
        if call.key is None:
            self._ready.append(call)
        elif (behind := self._behind.get(call.key)) is not None:
            behind.append(call)
        else:
            self._behind[call.key] = deque()
            self._ready.append(call)

    def start(self) -> None:
        """Start all calls that may run now."""
        while self._ready and len(self._tasks) < self._limit and not self._is_paused and not self._is_ending:
            if self._careful is not None and self._careful.is_on and not self._has_room(self._careful):
                return
            call = self._ready.popleft()
            self._tasks.add(self._owned.start(self._run(call), "call", awaited_elsewhere))

    def _has_room(self, careful: CallRecorder) -> bool:
        """Return whether the next call may run concurrently with the current ones."""
        call = self._ready[0]
        if self._alone is None and careful.is_alone(call.unit, call.position) and not self._tasks:
            self._alone = call
            return True
        return self._alone is None and not careful.is_alone(call.unit, call.position)

    @property
    def is_busy(self) -> bool:
        """Whether a call is running or waiting (from any thread)."""
        return bool(self._tasks or self._ready)

    def pause(self, is_paused: bool) -> None:
        """Pause or resume starting calls."""
        self._is_paused = is_paused
        if not is_paused:
            self.start()

    async def _process(self, call: OneCall) -> None:
        careful = self._careful
        if careful is None or not careful.is_on:
            await self._call.process(call, self._made)
        elif (error := careful.given_up(call.unit, call.position)) is not None:
            call.fail(error)
        else:
            with careful.in_flight(call.unit, call.position, call.position + 1):
                await self._call.process(call, self._made)

    async def _run(self, call: OneCall) -> None:
        try:
            call.is_skipped = self._skips(call)
            if not call.is_skipped:
                await self._process(call)
        except asyncio.CancelledError:
            if self._is_ending:
                call.is_given_up = True
            else:
                call.fail(RuntimeError("the call was cancelled by its own code"))
        except InstanceStopping:
            call.is_given_up = True
        except BaseException as error:  # noqa: BLE001  must end the instance, not the loop
            self.fatal = self.fatal or error
            call.is_given_up = True
        call.is_over = True
        task = asyncio.current_task()
        assert task is not None
        self._tasks.discard(task)  # before the next one starts
        if self._alone is call:
            self._alone = None
        if call.key is not None:
            behind = self._behind[call.key]
            if behind:
                self._ready.appendleft(behind.popleft())
            else:
                del self._behind[call.key]
        self._ended(call)
        self.start()

    async def end(self, grace_s: float, cancel_s: float = 1.0) -> None:
        """Start no more calls, wait for running ones, and cancel those that take too long.

        Args:
            grace_s: time for running calls to finish.
            cancel_s: time for cancelled calls to finish; after that they are abandoned.
        """
        self._is_ending = True
        if self._tasks and self.fatal is None:
            await asyncio.wait(tuple(self._tasks), timeout=grace_s)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=cancel_s)


def close_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel the remaining tasks of a function's event loop, and close the loop without waiting for threads."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=1.0))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
