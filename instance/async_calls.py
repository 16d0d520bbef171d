"""Calls of an async function: many at once, one at a time of each key, each with its own message in the context.

Design: the calls are tasks of an event loop that runs on the function's thread. They start in the order of their
messages, up to a limit, and the calls of one key follow each other. A context variable says which call a task belongs
to, also for tasks and coroutines that the function starts itself, so that one context object serves all of them.

What a call changes in the function's state is its own until it has ended well, and only then joins what other calls
have changed (`StateSession`): a call that fails leaves nothing behind. It reads what was there when it asked first.
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
    """A call of an async function on one message.

    Attributes:
        unit: the unit of the message.
        position: position of the message in the unit.
        key: calls with equal keys run one after the other; None for no key.
        serde: decodes the message.
        owner: arbitrary value of the code that created the call.
        outputs: encoded outputs; of a generator, those not taken yet.
        size: bytes of the outputs.
        failure: why the call failed, with the message's position; None if it succeeded.
        is_skipped: the function was not called because the message is no longer wanted.
        is_given_up: the call was cancelled because the thread is stopping; the message is redelivered.
        is_over: the call has ended, with any result.
        busy_s: duration in seconds.
        published: requests published through the context, where the owner decides when they are sent.
        tickets: tickets of requests published through the context.
        state: state read and changed by the call; None before its first access.
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
        """Take note that it has failed."""
        self.failure = Failure(self.position, error, blame)
        self.take_outputs()

    def take_outputs(self) -> list[bytes]:
        """Return what it gave, and let go of it."""
        outputs, self.outputs, self.size = self.outputs, [], 0
        return outputs


_current: ContextVar[OneCall | None] = ContextVar("call", default=None)


def current_call() -> OneCall | None:
    """Return the call that runs, or on behalf of which a task of the function's runs; it may be over."""
    return _current.get()


def key_of(entry: ReceivedEntry, index: int) -> object:
    """Return the key of a message, None if it has none: the ordering key, else the partition key."""
    headers = entry.headers
    header = entry.metadata if headers is None else headers[index]
    return header.ordering_key or header.partition_key or None


class AsyncCall(BatchCall):
    """An async function, or an async generator function, with its SerDe on both sides.

    Attributes:
        limit_s: for a call; None without a limit.
    """

    limit_s: float | None = None

    def __init__(self, function: Callable[..., Any], context: Any, output: SerDe) -> None:
        """Prepare calls of ``function(value)``, or of ``function(value, context)`` if there is a context."""
        super().__init__(function, context, output)
        self.session = None if context is None else context.session

    async def process(self, call: OneCall, made: Callable[[OneCall], Any]) -> None:
        """Call the function on a message, and put outputs or failure into the call.

        Args:
            call: of the message.
            made: called when a generator has made an output; awaited if that returns something.

        Raises:
            BaseException: the call was cancelled, or what it raised is not about its message alone.
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
                raise  # Python drops the coroutine with its closed loop
            error: BaseException = raised
            if limit.expired():
                error = TimeoutError(f"the call was cancelled after {self.limit_s:g} s, its limit (runTimeLimitMs)")
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
    """Return a session for one call: it reads what ``session`` has, and keeps its changes to itself."""
    return StateSession(lambda keys: Reading([session.get_state(key.decode()) for key in keys], 1))


def _merge(branch: StateSession, session: StateSession) -> None:
    """Make the changes of a call part of a session, all or, if one is refused, none."""
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
    except BaseException:  # also where the instance stops while a counter is read
        session.undo()
        raise


class CallRecorder(Protocol):
    """Records calls after the process has ended during one; see `deaths.careful.CarefulCalls`."""

    is_on: bool

    def is_alone(self, unit: Unit, position: int) -> bool:
        """Return whether the message at a position is to be in flight alone."""

    def given_up(self, unit: Unit, position: int) -> Exception | None:
        """Return why the message at a position is not called any more, None if it is."""

    def in_flight(self, unit: Unit, position: int, end: int) -> AbstractContextManager[None]:
        """Record that messages are in flight."""


class CallRunner:
    """Runs calls on the event loop of the function's thread; used there only.

    Attributes:
        fatal: what ends the instance, once a call has raised it.
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
        """Prepare.

        Args:
            call: the function.
            limit: how many calls may run at once.
            ended: called with each call that has ended.
            made: see `AsyncCall.process`.
            skips: whether a call ends without a result, as it begins.
            careful: records calls after the process ended during one; None if such deaths are not counted.
        """
        self.fatal: BaseException | None = None
        self._call = call
        self._limit = limit
        self._ended = ended
        self._made = made
        self._skips = skips
        self._careful = careful
        self._alone: OneCall | None = None  # the call beside which no other runs
        self._ready: deque[OneCall] = deque()
        self._behind: dict[object, deque[OneCall]] = {}  # by the key of a call that is ready or runs
        self._owned = TaskSet("async calls")
        self._tasks: set[asyncio.Task[None]] = set()  # of calls that have not ended
        self._is_paused = False
        self._is_ending = False

    def add(self, call: OneCall) -> None:
        """Have a call run after those that were added before, as far as limit and keys allow; `start` it."""
        if call.key is None:
            self._ready.append(call)
        elif (behind := self._behind.get(call.key)) is not None:
            behind.append(call)
        else:
            self._behind[call.key] = deque()
            self._ready.append(call)

    def start(self) -> None:
        """Start what may be started."""
        while self._ready and len(self._tasks) < self._limit and not self._is_paused and not self._is_ending:
            if self._careful is not None and self._careful.is_on and not self._has_room(self._careful):
                return
            call = self._ready.popleft()
            self._tasks.add(self._owned.start(self._run(call), "call", awaited_elsewhere))

    def _has_room(self, careful: CallRecorder) -> bool:
        """Return whether the next call may run beside those that run."""
        call = self._ready[0]
        if self._alone is None and careful.is_alone(call.unit, call.position) and not self._tasks:
            self._alone = call
            return True
        return self._alone is None and not careful.is_alone(call.unit, call.position)

    @property
    def is_busy(self) -> bool:
        """Whether a call runs or waits to (from any thread)."""
        return bool(self._tasks or self._ready)

    def pause(self, is_paused: bool) -> None:
        """Start nothing for now, or go on."""
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
        except BaseException as error:  # noqa: BLE001  the instance ends with it, not the loop
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
        """Start nothing any more, and wait until all calls have ended; cancel those that take longer.

        Args:
            grace_s: for the calls to end by themselves.
            cancel_s: for those that were cancelled to end; what then still runs is left behind.
        """
        self._is_ending = True
        if self._tasks and self.fatal is None:
            await asyncio.wait(tuple(self._tasks), timeout=grace_s)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=cancel_s)


def close_loop(loop: asyncio.AbstractEventLoop) -> None:
    """End what a function has left on its event loop, and close it; it does not wait for threads."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=1.0))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
