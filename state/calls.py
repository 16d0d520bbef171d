"""Thread scheduling of the table service: fair shares for tenants, and a timeout for requests that do not arrive.

Design: gRPC assigns a thread to a call when its headers have arrived, and the thread waits for the request. So a client
could occupy all threads with calls that it never completes. So each tenant has a share of the threads and of the queue.
The tenant is taken from the name of the table that the call's token is for; without tokens, all calls belong to a
single tenant without a limit. A call that has a thread but sends no request is cancelled after `REQUEST_TIMEOUT_S`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Condition, Lock, Thread
from time import monotonic
from typing import Any, NamedTuple

import grpc

from ..tasks import FairQueue, Room, Shares

THREADS = 96
"""Maximum number of concurrent calls; a call holds its thread while it waits."""
THREADS_PER_TENANT = 32
CALLS_MAX = 2_048
"""Maximum number of waiting and running calls; further calls are rejected and should be retried."""
CALLS_PER_TENANT = 512
REQUEST_TIMEOUT_S = 10.0
"""How long a call may hold a thread before its request arrives, in seconds."""
_REFUSING_THREADS = 4
"""Threads for rejected calls, which never wait."""


class _Work(NamedTuple):
    """A call that waits for a thread."""

    tenant: str
    future: Future[Any]
    run: Callable[[], Any]


class CallThreads(ThreadPoolExecutor):
    """The threads of a server, shared between tenants.

    gRPC calls an interceptor for a call and then, in the same thread, submits it: `expect` sets the tenant of the next
    submitted call.
    """

    def __init__(self, *, has_tenants: bool) -> None:
        """Create an executor; threads are started when needed.

        Args:
            has_tenants: whether calls identify their tenant; if not, all calls belong to one tenant without a limit.
        """
        super().__init__(THREADS + _REFUSING_THREADS, "state")
        self._places = Shares(THREADS, THREADS_PER_TENANT if has_tenants else THREADS)
        self._calls = Shares(CALLS_MAX, CALLS_PER_TENANT if has_tenants else CALLS_MAX)
        self._waiting: FairQueue[_Work] = FairQueue()
        self._lock = Lock()
        self._next: str | None = None

    @property
    def calls_per_tenant(self) -> int:
        """Maximum number of waiting and running calls per tenant."""
        return self._calls.per_key

    def expect(self, tenant: str | None) -> Room:
        """Set the tenant of the next submitted call; return whether the tenant may have another call.

        Args:
            tenant: tenant of the call; None for a call that will be rejected, which does not count towards a share.
        """
        with self._lock:
            room = Room.FREE if tenant is None else self._calls.room(tenant)
        self._next = tenant if room is Room.FREE else None
        return room

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Queue the call until its tenant has a free thread."""
        tenant, self._next = self._next, None
        if tenant is None:
            return super().submit(fn, *args, **kwargs)
        work = _Work(tenant, Future(), lambda: fn(*args, **kwargs))
        with self._lock:
            self._calls.take(tenant)
            self._waiting.put(tenant, work)
            self._start_next()
        return work.future

    def _start_next(self) -> None:
        while (work := self._waiting.pop(self._may_start)) is not None:
            self._places.take(work.tenant)
            super().submit(self._run, work)

    def _may_start(self, tenant: str) -> bool:
        return self._places.room(tenant) is Room.FREE

    def _run(self, work: _Work) -> None:
        try:
            result = work.run() if work.future.set_running_or_notify_cancel() else None
        except BaseException as error:  # noqa: BLE001  as a pool's own threads do
            work.future.set_exception(error)
        else:
            if not work.future.cancelled():
                work.future.set_result(result)
        finally:
            with self._lock:
                self._places.give_back(work.tenant)
                self._calls.give_back(work.tenant)
                self._start_next()


class RequestWatch:
    """Cancels calls whose request does not arrive in time, with one thread for all calls."""

    def __init__(self, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._waiting: deque[tuple[float, list[Any]]] = deque()  # deadline, and context until the request arrives
        self._changed = Condition()
        self._is_idle = self._is_closed = False
        self._thread = Thread(target=self._watch, name="state requests", daemon=True)
        self._thread.start()

    def next(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
        """Return a call's request, or None if the call ended without one."""
        watched = [context]
        with self._changed:
            self._waiting.append((monotonic() + self._timeout_s, watched))
            if self._is_idle:
                self._is_idle = False
                self._changed.notify()
        try:
            return next(requests, None)
        except grpc.RpcError:
            return None
        finally:
            with self._changed:
                watched.clear()
                while self._waiting and not self._waiting[0][1]:
                    self._waiting.popleft()

    def close(self) -> None:
        """Stop the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _watch(self) -> None:
        with self._changed:
            while not self._is_closed:
                while self._waiting and self._waiting[0][0] <= monotonic():
                    _, watched = self._waiting.popleft()
                    for context in watched:
                        context.cancel()
                self._is_idle = not self._waiting
                self._changed.wait(self._waiting[0][0] - monotonic() if self._waiting else None)
