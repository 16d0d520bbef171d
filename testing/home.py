"""The environment of a function under test, which is the test's process with its imported modules."""

from __future__ import annotations

import importlib
import logging
from types import ModuleType

from ..instance.function_context import instance_logger
from ..instance.loading.loader import ProcessHome
from ..instance.logs.file import InstanceLog, LogHandler
from ..instance.spec import InstanceSpec

MODULE = "function_under_test"
ATTRIBUTE = "function"
CLASS_NAME = f"{MODULE}.{ATTRIBUTE}"


class TestedHome(ProcessHome):
    """Returns the test's function object, and imports everything else as the test does.

    The function's output goes to the test's output. Log records of the context logger go to the instance's log and to
    the root logger's handlers.
    """

    def __init__(self, function: object, spec: InstanceSpec, instance_log: InstanceLog) -> None:
        """Create the environment of an instance.

        Args:
            function: a function, an object with a `process` method, or a class of such objects.
            spec: specification of the instance.
            instance_log: receives the instance's log records.
        """
        super().__init__(spec.package)
        self._module = ModuleType(MODULE)
        process = getattr(function, "process", None)
        is_processor = not isinstance(function, type) and not callable(function) and callable(process)
        setattr(self._module, ATTRIBUTE, process if is_processor else function)
        self._logger = instance_logger(spec)
        self._handler = LogHandler(instance_log)

    def enter_thread(self) -> None:
        """Start collecting log records."""
        self._logger.setLevel(logging.INFO)
        self._logger.addHandler(self._handler)

    def leave_thread(self) -> None:
        """Stop collecting log records."""
        self._logger.removeHandler(self._handler)

    def import_module(self, name: str) -> ModuleType:
        """Return a module by name."""
        return self._module if name == MODULE else importlib.import_module(name)
