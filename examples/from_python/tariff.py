"""A user module that is not installed on the workers, and is sent with the function that uses it."""

from dataclasses import dataclass


@dataclass
class Ride:
    km: float
    minutes: float

    def fare(self, base, per_km, per_minute):
        return round(base + self.km * per_km + self.minutes * per_minute, 2)
