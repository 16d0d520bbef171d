"""Watches Spark jobs of a function from a second thread, and cancels them when their run is cancelled."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..task_killer import PROPERTY, TaskKiller

if TYPE_CHECKING:
    from pyspark import SparkContext

LOOK_S = 0.1
_ERROR_CHARACTERS = 8_000


@contextlib.contextmanager
def watched(context: SparkContext, tag: str, look: Callable[[], bool]) -> Iterator[None]:
    """Tag the jobs that this thread starts, and cancel them once ``look`` says so.

    Args:
        context: that runs them.
        tag: unlike that of any other function.
        look: called every `LOOK_S` from another thread; once it returns True, the jobs are cancelled.
    """
    is_over = threading.Event()
    killer = TaskKiller(str(context.getConf().get("spark.driver.host")))

    def watch() -> None:
        while not is_over.wait(LOOK_S):
            if look():
                # Repeated: the job may not have begun when it was cancelled the first time.
                context.cancelJobsWithTag(tag)
                killer.kill()

    thread = threading.Thread(target=watch, name=f"watch {tag}", daemon=True)
    context.setLocalProperty("spark.scheduler.pool", tag)
    context.setLocalProperty(PROPERTY, killer.address)
    context.addJobTag(tag)
    thread.start()
    try:
        yield
    except BaseException:
        killer.kill()  # whoever watches may not have looked since
        raise
    finally:
        is_over.set()
        thread.join()
        killer.close()
        context.removeJobTag(tag)


def told(error: BaseException) -> str:
    """Return the message of an error of a job, without the stack of the JVM."""
    cause: Any = getattr(error, "java_exception", None)
    text = str(error) if cause is None else str(cause.getMessage() or cause.toString())
    lines = []
    for line in text.splitlines():
        if line.startswith(("Driver stacktrace:", "\tat ", "JVM stacktrace:")):
            break
        lines.append(line)
    text = "\n".join(lines).strip() or type(error).__name__
    return text if len(text) <= _ERROR_CHARACTERS else f"{text[:_ERROR_CHARACTERS]} …"
