"""Combine a settlement's maker with kinds of functions that are not called message by message."""

from __future__ import annotations

from typing import cast

from ..wire.functions_pb2 import FAILOVER
from .acks.async_flow import AsyncFlow
from .acks.pieces import PieceMaker
from .acks.streams import StreamMaker
from .async_calls import AsyncCall
from .async_steps import AsyncSteps
from .exact.results import ResultMaker
from .function_thread import Calls, Maker
from .kind_calls import async_calls_max
from .loading.kinds import Kind
from .loading.loader import LoadedFunction
from .loop_watch import LoopWatch
from .spec import InstanceSpec


def arrange(calls: Calls, loaded: LoadedFunction, maker: Maker, spec: InstanceSpec, watch: LoopWatch) -> None:
    """Set up ``calls`` for the kind of the function.

    Args:
        calls: the function's calls, to be changed.
        loaded: the function.
        maker: the settlement's maker: a `PieceMaker`, or a `ResultMaker` under EFFECTIVELY_ONCE.
        spec: the instance's spec.
        watch: detects async calls that block their loop.

    Raises:
        FunctionLoadError: a setting does not apply to this kind of function.
    """
    limit = async_calls_max(spec, loaded.kind)
    if loaded.kind is Kind.GENERATOR and isinstance(maker, PieceMaker):
        calls.process = StreamMaker(maker).process
    if isinstance(maker, PieceMaker) and maker.careful is not None:
        maker.careful.open()
    if not loaded.kind.is_async:
        return
    assert loaded.loop is not None
    if isinstance(maker, PieceMaker):
        in_order = spec.details.source.subscriptionType == FAILOVER
        flow = AsyncFlow(maker, calls, loaded.loop, limit, watch, in_order=in_order)
        calls.produce, calls.wake, calls.close = flow.run, flow.wake, flow.close
        calls.is_busy = lambda: flow.is_busy
        return
    take = cast(ResultMaker, maker).take_call
    call = cast(AsyncCall, calls.batch_call)
    steps = AsyncSteps(call, loaded.loop, limit, watch, take, in_order=spec.details.retainOrdering)
    calls.steps, calls.wake, calls.close = steps.steps, steps.wake, steps.close
