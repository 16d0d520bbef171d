"""Logging guard: keeps the logging of a worker working while functions run in its process.

Design: Python's logging is one for the process. A function that sets up its own, by ``basicConfig(force=True)`` or
``dictConfig``, takes the root logger's handlers away, disables loggers that are there, or all of them. So the root
logger's list of handlers does not give up those of the worker, and what can be changed past it is put back by `mend`,
which is called twice a second and after each import of a function. What a function adds stays.
"""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)

OURS = "magnetar"


class _KeptHandlers(list[logging.Handler]):
    """Handlers of which some cannot be removed."""

    def __init__(self, kept: list[logging.Handler]) -> None:
        super().__init__(kept)
        self._kept = tuple(kept)

    def remove(self, handler: logging.Handler) -> None:
        if handler not in self._kept:
            super().remove(handler)


class LoggingGuard:
    """The root logger and the loggers of this package as they were when it was made."""

    def __init__(self) -> None:
        """Take note, and begin to keep the handlers."""
        root = logging.getLogger()
        self._handlers = list(root.handlers)
        self._level = root.level
        self._disable = root.manager.disable
        root.handlers = _KeptHandlers(self._handlers)

    def mend(self) -> None:
        """Put back what functions have changed, and say so."""
        root = logging.getLogger()
        found = []
        if not isinstance(root.handlers, _KeptHandlers) or not set(self._handlers) <= set(root.handlers):
            found.append("its handlers")
            added = [handler for handler in root.handlers if handler not in self._handlers]
            root.handlers = _KeptHandlers(self._handlers)
            root.handlers += added
        if root.level != self._level:
            found.append("its level")
            root.setLevel(self._level)
        if root.manager.disable != self._disable:
            found.append("what is disabled")
            logging.disable(self._disable)
        if self._enable():
            found.append("its loggers")
        if found:
            log.warning(
                "a thread function has changed the logging of this worker (%s), which is put back; a function that"
                " sets up logging needs --runtime process",
                ", ".join(found),
            )

    def _enable(self) -> int:
        """Enable the loggers of this package and those of instances again; return how many were not."""
        count = 0
        for name, logger in list(logging.getLogger().manager.loggerDict.items()):
            is_kept = name.partition(".")[0] == OURS or "/" in name or name.startswith("fn_")
            if is_kept and isinstance(logger, logging.Logger) and logger.disabled:
                logger.disabled = False
                count += 1
        return count

    def end(self) -> None:
        """Keep nothing any more; what is changed at this moment is put back."""
        self.mend()
        root = logging.getLogger()
        root.handlers = list(root.handlers)
