"""`python -m benchmarks.soak_broker`: 200 topics and 400 reconnecting consumers, for ten minutes.

Consumers of all four types, with our client and the official one, stay for 20 seconds on average and reconnect. Some
are slow or request few messages at a time. Some messages are delayed, and some are rejected by all consumers and become
dead letters. Meanwhile, topics are unloaded, and others are created and deleted while a pattern consumer watches.

At the end, every published message is settled on every subscription: acknowledged, or in the dead letter topic if all
consumers reject it. No message was delivered before its time or before an earlier one with its key, no subscription has
a backlog, no consumer is missing, and the memory of the broker and of the client process is constant.

Environment: MAGNETAR_SOAK_S, seconds (600); MAGNETAR_SOAK_SEED, the random seed. Exit code 1 if a check failed, with a
line for each cause.
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
    """Run the soak, printing a line for each minute."""
    return judge(BrokerSoak(settings, directory, rng).run())


if __name__ == "__main__":
    sys.exit(report(run, SECONDS))
