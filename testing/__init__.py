"""Stand-ins for tests, the ones that the tests of this package use.

`BrokerThread` is the broker itself, in the process of the test. `SimulatedDisk` takes the place of the disk under the
broker's storage: it runs full, fails on order, and loses in a power failure what was not synced.
"""

from .broker_thread import BrokerThread
from .simulated_disk import Operation, SimulatedCrash, SimulatedDisk, SimulatedFile, SimulatedLock

__all__ = ["BrokerThread", "Operation", "SimulatedCrash", "SimulatedDisk", "SimulatedFile", "SimulatedLock"]
