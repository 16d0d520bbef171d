"""For tests: functions under test, and the stand-ins that the tests of this package use.

`FunctionTest` runs a function in a test, on a broker in memory and by a clock that the test moves; `pytest_plugin`
has a fixture of it. `BrokerThread` is the broker itself, in the process of the test. `SimulatedDisk` takes the place of
the disk under the broker's storage: it runs full, fails on order, and loses in a power failure what was not synced.
"""

from .broker_thread import BrokerThread
from .function_test import FunctionFailed, FunctionTest, NoOutput
from .simulated_disk import Operation, SimulatedCrash, SimulatedDisk, SimulatedFile, SimulatedLock

__all__ = [
    "BrokerThread", "FunctionFailed", "FunctionTest", "NoOutput", "Operation", "SimulatedCrash", "SimulatedDisk",
    "SimulatedFile", "SimulatedLock",
]  # fmt: skip
