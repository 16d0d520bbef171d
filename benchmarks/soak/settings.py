"""Duration and seed of a soak."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

MINUTE_S = 60.0
MINUTES_MIN = 8
"""Minimum number of minutes; in a short soak they are shortened."""
SECONDS_MIN = 10.0


@dataclass(frozen=True)
class Settings:
    """Settings of a soak.

    Attributes:
        seconds: duration of the load.
        seed: seed of all random decisions.
        kills: whether processes are killed, in soaks with kills.
    """

    seconds: float
    seed: int
    kills: bool = True

    @property
    def minute_s(self) -> float:
        """Return the duration of one line of output, in seconds."""
        return min(MINUTE_S, self.seconds / MINUTES_MIN)


def settings_of(environment: Mapping[str, str], seconds: float) -> Settings:
    """Read the settings from the environment.

    Args:
        environment: may contain MAGNETAR_SOAK_S, MAGNETAR_SOAK_SEED and MAGNETAR_SOAK_KILLS.
        seconds: default duration.

    Raises:
        ValueError: a value is invalid.
    """
    given = environment.get("MAGNETAR_SOAK_S") or str(seconds)
    try:
        seconds = float(given)
    except ValueError:
        raise ValueError(f"invalid MAGNETAR_SOAK_S={given}: expected a number of seconds") from None
    if not SECONDS_MIN <= seconds < 1e6:
        raise ValueError(f"MAGNETAR_SOAK_S={given} is too short or too long: expected at least {SECONDS_MIN:g}")
    seed = environment.get("MAGNETAR_SOAK_SEED") or str(random.randrange(2**32))
    if not seed.isdecimal():
        raise ValueError(f"invalid MAGNETAR_SOAK_SEED={seed}: expected a whole number")
    kills = environment.get("MAGNETAR_SOAK_KILLS") or "1"
    if kills not in ("0", "1"):
        raise ValueError(f"invalid MAGNETAR_SOAK_KILLS={kills}: expected 0 or 1")
    return Settings(seconds, int(seed), kills == "1")
