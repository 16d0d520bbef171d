"""One Spark job, or all that a function starts, looked after from a second thread and ended when it is not wanted."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..task_killer import PROPERTY, Leash

if TYPE_CHECKING:
    from pyspark import SparkContext

LOOK_S = 0.1
_ERROR_CHARACTERS = 8_000


@contextlib.contextmanager
def watched(context: SparkContext, tag: str, look: Callable[[], bool]) -> Iterator[None]:
    """Have the jobs that this thread starts carry a tag, and end them once they are not wanted.

    Args:
        context: that runs them.
        tag: unlike that of any other function.
        look: called every `LOOK_S` from another thread; once it returns True, jobs end.
    """
    is_over = threading.Event()
    leash = Leash(str(context.getConf().get("spark.driver.host")))

    def watch() -> None:
        while not is_over.wait(LOOK_S):
            if look():
                # Again and again: the job may not have begun when it was ended the first time.
                context.cancelJobsWithTag(tag)
                leash.cut()

    thread = threading.Thread(target=watch, name=f"watch {tag}", daemon=True)
    context.setLocalProperty("spark.scheduler.pool", tag)
    context.setLocalProperty(PROPERTY, leash.address)
    context.addJobTag(tag)
    thread.start()
    try:
        yield
    except BaseException:
        leash.cut()  # whoever watches may not have looked since
        raise
    finally:
        is_over.set()
        thread.join()
        leash.close()
        context.removeJobTag(tag)


def told(error: BaseException) -> str:
    """Return what an error out of a job says, without the stack of the JVM."""
    cause: Any = getattr(error, "java_exception", None)
    text = str(error) if cause is None else str(cause.getMessage() or cause.toString())
    lines = []
    for line in text.splitlines():
        if line.startswith(("Driver stacktrace:", "\tat ", "JVM stacktrace:")):
            break
        lines.append(line)
    text = "\n".join(lines).strip() or type(error).__name__
    return text if len(text) <= _ERROR_CHARACTERS else f"{text[:_ERROR_CHARACTERS]} …"
