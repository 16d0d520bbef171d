"""Test support: functions under test, and the stand-ins used by this package's own tests.

`FunctionTest` runs a function in a test, on an in-memory broker and with a clock that the test advances;
`pytest_plugin` provides it as a fixture. `BrokerThread` runs a broker in the test's process. `SimulatedDisk` replaces
the disk of the broker's storage; it can fill up, fail on request, and lose unsynced data in a power failure.
"""

from .broker_thread import BrokerThread
from .function_test import FunctionFailed, FunctionTest, NoOutput
from .simulated_disk import Operation, SimulatedCrash, SimulatedDisk, SimulatedFile, SimulatedLock

__all__ = [
    "BrokerThread", "FunctionFailed", "FunctionTest", "NoOutput", "Operation", "SimulatedCrash", "SimulatedDisk",
    "SimulatedFile", "SimulatedLock",
]  # fmt: skip
