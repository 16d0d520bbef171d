"""Create the caller for each kind of function, and read settings that apply only to some kinds."""

from __future__ import annotations

from ..api.context import Context
from ..api.serde import SerDe
from ..config.conversion import runtime_options
from ..errors import FunctionLoadError
from .async_calls import AsyncCall
from .batch_call import BatchCall
from .batch_function import BatchFunctionCall
from .generator_call import GeneratorCall
from .loading.kinds import Kind
from .loading.loader import LoadedFunction
from .spec import InstanceSpec

ASYNC_CALLS_MAX = 1000
"""Default maximum number of concurrent calls of an async function."""
_SETTING = "maxPendingAsyncRequests"


def call_of(loaded: LoadedFunction, context: Context | None, output: SerDe) -> BatchCall:
    """Return the caller of a function.

    Args:
        loaded: the function.
        context: the function's context; None if it takes none.
        output: encodes outputs.
    """
    if loaded.kind is Kind.BATCH:
        return BatchFunctionCall(loaded.call, context, output, loaded.batch_size)
    kind = AsyncCall if loaded.kind.is_async else GeneratorCall if loaded.kind is Kind.GENERATOR else BatchCall
    return kind(loaded.call, context, output)


def async_calls_max(spec: InstanceSpec, kind: Kind) -> int:
    """Return the maximum number of concurrent calls.

    Raises:
        FunctionLoadError: the limit is set, but the function is not async.
    """
    given: int | None = runtime_options(spec.details.customRuntimeOptions).get("max_pending_async_requests")
    if given is not None and given != ASYNC_CALLS_MAX and not kind.is_async:
        raise FunctionLoadError(
            f"{_SETTING} is {given}, but {spec.details.className} is {kind.value}, which processes one message at a"
            " time: remove the setting, or make the function async def"
        )
    return ASYNC_CALLS_MAX if given is None else given
