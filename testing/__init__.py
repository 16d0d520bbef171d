"""Stand-ins for tests, the ones that the tests of this package use.

`SimulatedDisk` takes the place of the disk under the broker's storage: it runs full, fails on order, and loses in a
power failure what was not synced.
"""

from .simulated_disk import Operation, SimulatedCrash, SimulatedDisk, SimulatedFile, SimulatedLock

__all__ = ["Operation", "SimulatedCrash", "SimulatedDisk", "SimulatedFile", "SimulatedLock"]
