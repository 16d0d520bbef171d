"""`python -m benchmarks.soak_broker`: 200 topics and 400 consumers that come and go, for ten minutes.

Consumers of all four types, of our client and of the official one, stay for 20 seconds on the average and come again.
Some are slow or ask for few messages at a time. Some messages are delayed, and some are accepted by nobody and become
dead letters. Beside that, topics are unloaded, and others are made and deleted under a pattern's eyes.

In the end every message that was published is settled on every subscription: acknowledged, or in the dead letter topic
if nobody accepts it. None came before its time or before an earlier one of its key, no subscription has a backlog, no
consumer is missing, and the memory of the broker and of the clients' process is level.

The environment: MAGNETAR_SOAK_S, seconds (600); MAGNETAR_SOAK_SEED, which repeats what chance decides. Exit code 1 if
something is missed, with a line for each cause.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from ..soak.report import Verdict, report
from ..soak.settings import Settings
from .run import SECONDS, BrokerSoak
from .verdict import judge


def run(settings: Settings, directory: Path, rng: random.Random) -> Verdict:
    """Run to the end, with a line for each minute."""
    return judge(BrokerSoak(settings, directory, rng).run())


if __name__ == "__main__":
    sys.exit(report(run, SECONDS))
