"""How long a soak lasts, and what its seed repeats."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

MINUTE_S = 60.0
MINUTES_MIN = 8
"""In a short soak a minute is an eighth of it."""
SECONDS_MIN = 10.0


@dataclass(frozen=True)
class Settings:
    """How long, and which moments.

    Attributes:
        seconds: of load, beside what comes before and after.
        seed: of everything that chance decides.
        kills: whether processes are killed, in a soak that kills some.
    """

    seconds: float
    seed: int
    kills: bool = True

    @property
    def minute_s(self) -> float:
        """How long one line lasts."""
        return min(MINUTE_S, self.seconds / MINUTES_MIN)


def settings_of(environment: Mapping[str, str], seconds: float) -> Settings:
    """Read the settings.

    Args:
        environment: MAGNETAR_SOAK_S, MAGNETAR_SOAK_SEED and MAGNETAR_SOAK_KILLS, each of which may be missing.
        seconds: where nothing else is said.

    Raises:
        ValueError: one cannot be.
    """
    given = environment.get("MAGNETAR_SOAK_S") or str(seconds)
    try:
        seconds = float(given)
    except ValueError:
        raise ValueError(f"MAGNETAR_SOAK_S={given} is not a number of seconds") from None
    if not SECONDS_MIN <= seconds < 1e6:
        raise ValueError(f"MAGNETAR_SOAK_S={given} is too short or too long; give {SECONDS_MIN:g} at least")
    seed = environment.get("MAGNETAR_SOAK_SEED") or str(random.randrange(2**32))
    if not seed.isdecimal():
        raise ValueError(f"MAGNETAR_SOAK_SEED={seed} is not a whole number")
    kills = environment.get("MAGNETAR_SOAK_KILLS") or "1"
    if kills not in ("0", "1"):
        raise ValueError(f"MAGNETAR_SOAK_KILLS={kills} is neither 0 nor 1")
    return Settings(seconds, int(seed), kills == "1")
