"""The phases of a soak: maximum rate, half of it with a kill per minute, and verification."""

from __future__ import annotations

import random
import time
from pathlib import Path

import psutil
from magnetar.instance.unit import HELD_MESSAGES_MAX

from tests.support.waiting import wait_for

from ..plan import Plan
from ..real_input import APPLICATION, BATCHES, official_input
from .minutes import Minute, Watch, disk_mib
from .servers import DEAD, EXACT, INPUT, KINDS, LEAST, OUTPUTS, PARALLELISM, PARTITIONS, Servers
from .settings import Settings
from .traffic import Traffic
from .verdict import Counts, Outcome

SECONDS = 1800.0
MAXIMUM_SHARE = 0.5
MAXIMUM_S, MAXIMUM_SHORT_SHARE = 45.0, 0.2
"""How long the maximum is measured, in seconds; in a short soak a share of the duration."""
WARM_SHARE = 0.3
"""Share of this time that is not measured, as connections are opened and caches fill. It starts with the first outputs
of both functions.
"""
STARTED_S = 60.0
TICK_S = 0.25
LOOK_S = 2.0
DRAINED_S = 240.0
"""Time for acknowledging all input at the end, in seconds; a failed message is redelivered after 60 s."""


class Soak:
    """A run of the soak."""

    def __init__(self, settings: Settings, directory: Path, rng: random.Random) -> None:
        self._settings = settings
        self._directory = directory
        self._rng = rng
        self._servers = Servers(directory / "servers", rng)
        self._watch = Watch()
        self._kills: list[str] = []

    def run(self) -> Outcome:
        """Run all phases, and verify the results.

        Raises:
            Exception: a process exited, or a wait timed out; the first line contains the reason.
        """
        plan = Plan(1.0, 1, self._directory)
        given = [official_input(plan, APPLICATION, batch) for batch in BATCHES]
        with self._servers.running():
            traffic = Traffic(
                self._servers.broker.service_url,
                given,
                [f"persistent://public/default/{INPUT}-partition-{number}" for number in range(PARTITIONS)],
                {LEAST: [OUTPUTS[LEAST]], EXACT: [OUTPUTS[EXACT], DEAD]},
            )
            traffic.start()
            try:
                return self._measure(traffic)
            finally:
                traffic.close()

    def _measure(self, traffic: Traffic) -> Outcome:
        maximum = self._maximum(traffic)
        wait_for(lambda: min(traffic.processed().values()) >= traffic.published * 0.99, "end of the backlog", DRAINED_S)
        rate = maximum * MAXIMUM_SHARE
        print(f"maximum {maximum:,.0f} messages/s through both functions; continuing with {rate:,.0f}/s", flush=True)
        traffic.pace(rate)
        self._watch.look(self._servers.processes(), time.time())
        self._watch.memory_mib()
        minutes = []
        for number in range(round(self._settings.seconds / self._settings.minute_s)):
            minutes.append(self._minute(traffic, number))
            print(minutes[-1], flush=True)
        again = self._maximum(traffic)
        return Outcome(rate, maximum, again, minutes, list(self._watch.lives.values()), self._count(traffic))

    def _maximum(self, traffic: Traffic) -> float:
        """Return messages per second through the slower function with unlimited input."""
        seconds = min(MAXIMUM_S, self._settings.seconds * MAXIMUM_SHORT_SHARE)
        before = traffic.processed()
        traffic.pace(None)
        for name in before:
            wait_for(lambda name=name: traffic.processed()[name] > before[name], f"output of {name}", STARTED_S)  # type: ignore[misc]
        self._pass(traffic, seconds * WARM_SHARE)
        began, before = time.monotonic(), traffic.processed()
        self._pass(traffic, seconds * (1 - WARM_SHARE))
        took_s = time.monotonic() - began
        rates = [(after - before[name]) / took_s for name, after in traffic.processed().items()]
        traffic.pace(0)
        if min(rates) <= 0:
            raise RuntimeError("a function produced no output while the maximum was measured")
        return min(rates)

    def _pass(self, traffic: Traffic, seconds: float) -> None:
        """Wait for some time, sampling regularly."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            traffic.check()
            time.sleep(TICK_S)

    def _minute(self, traffic: Traffic, number: int) -> Minute:
        length_s = self._settings.minute_s
        began, before = time.monotonic(), traffic.processed()
        cpu_s, others_s = self._watch.cpu_s(), self._watch.others_s()
        kill_at = began + self._rng.uniform(0, length_s) if self._settings.kills else float("inf")
        most_mib, kills, next_look = 0.0, [], began
        while (now := time.monotonic()) < began + length_s or kill_at < began + length_s:
            traffic.check()
            if now >= kill_at:
                kill_at = float("inf")
                kills.append(self._servers.kill(KINDS[number % len(KINDS)]))
            elif now >= next_look:
                next_look = now + LOOK_S
                self._watch.look(self._servers.processes(), time.time())
                most_mib = max(most_mib, disk_mib(self._servers.directory))
            else:
                time.sleep(TICK_S)
        after, published = traffic.processed(), traffic.published
        took_s = time.monotonic() - began
        self._kills += kills
        return Minute(
            number,
            took_s,
            {name: after[name] - before[name] for name in after},
            {name: published - after[name] for name in after},
            self._watch.memory_mib(),
            self._watch.cpu_s() - cpu_s,
            max(0.0, self._watch.others_s() - others_s) / took_s / (psutil.cpu_count() or 1),
            most_mib,
            kills,
        )

    def _count(self, traffic: Traffic) -> Counts:
        """Wait until all messages are processed, and read all outputs."""
        traffic.finish()
        began = time.monotonic()
        wait_for(lambda: traffic.is_stored, "receipts of all input", DRAINED_S)
        wait_for(self._servers.is_drained, "end of the backlog", DRAINED_S)
        wait_for(self._servers.is_read, "end of the functions' outputs", DRAINED_S)
        traffic.check()
        took_s = time.monotonic() - began
        print(f"processed all {traffic.published:,} messages, {took_s:.0f} s after the last was published")
        payloads, keys = traffic.expected()
        # Only messages held by an instance at a kill may be processed again.
        again = len(self._kills) * PARALLELISM * HELD_MESSAGES_MAX
        return Counts(
            payloads,
            keys,
            {topic: dict(counts) for topic, counts in traffic.payloads.items()},
            {name: self._servers.state(name, [*keys, "dead letters"]) for name in OUTPUTS},
            again,
        )
