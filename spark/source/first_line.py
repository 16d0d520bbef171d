"""Makes Spark show the message of our errors in the first line.

Spark transfers the traceback of a Python worker as text, preceded by a sentence. Python starts the text with the cause
of the error, and an error that was never raised has no stack. If the first cause is a copy of the error, its message
therefore appears twice: in the first line and in its usual place. The setting that omits causes is turned off; the
worker exits after a failure anyway.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from ...errors import MagnetarError

_LEAVES_CAUSES_OUT = "SPARK_SIMPLIFIED_TRACEBACK"
"""Variable in the workers' environment unless ``spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled=false``."""
_P = ParamSpec("_P")
_T = TypeVar("_T")


def told_first(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Return a wrapper whose MagnetarErrors, including those of returned iterators, start with their message."""

    @wraps(function)
    def telling(*args: _P.args, **kwargs: _P.kwargs) -> Any:
        try:
            result = function(*args, **kwargs)
        except MagnetarError as error:
            _put_first(error)
            raise
        return _told(result) if isinstance(result, Iterator) else result

    return telling


def _told(values: Iterator[_T]) -> Iterator[_T]:
    try:
        yield from values
    except MagnetarError as error:
        _put_first(error)
        raise


def _put_first(error: MagnetarError) -> None:
    os.environ.pop(_LEAVES_CAUSES_OUT, None)
    first: BaseException = error
    seen = set()
    while id(first) not in seen:
        seen.add(id(first))
        before = first.__cause__ or (None if first.__suppress_context__ else first.__context__)
        if before is None:
            break
        first = before
    if first.__traceback__ is None and type(first) is type(error):
        return  # already shown by an inner call
    line = type(error).__new__(type(error))
    line.args = (str(error),)
    first.__cause__ = line
