"""Where a function under test lives: in the process of the test, with the modules that are imported there."""

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
    """Hands out the object that the test has, and imports everything else as the test does.

    What the function prints goes where the test's prints go; what it logs with the context's logger goes to the
    instance's log, and on to the handlers of the root logger.
    """

    def __init__(self, function: object, spec: InstanceSpec, instance_log: InstanceLog) -> None:
        """Prepare.

        Args:
            function: a function, an object with a method `process`, or a class of such.
            spec: of the instance.
            instance_log: takes what it logs.
        """
        super().__init__(spec.package)
        self._module = ModuleType(MODULE)
        process = getattr(function, "process", None)
        is_processor = not isinstance(function, type) and not callable(function) and callable(process)
        setattr(self._module, ATTRIBUTE, process if is_processor else function)
        self._logger = instance_logger(spec)
        self._handler = LogHandler(instance_log)

    def enter_thread(self) -> None:
        """Begin to take what is logged."""
        self._logger.setLevel(logging.INFO)
        self._logger.addHandler(self._handler)

    def leave_thread(self) -> None:
        """End that."""
        self._logger.removeHandler(self._handler)

    def import_module(self, name: str) -> ModuleType:
        """Return a module by its name."""
        return self._module if name == MODULE else importlib.import_module(name)
