"""A million keys: what the issue of state promises about them."""

from __future__ import annotations

import random
import statistics
from pathlib import Path

import psutil
import pytest
from magnetar.state.client import Increment, Put

from tests.support.calm import Calm

from .conftest import TABLE
from .processes import running_service

KEYS = 1_000_000
A_CALL = 20_000


@pytest.mark.crash
@pytest.mark.timeout(300)
def test_a_million_keys_open_fast_and_stay_small(tmp_path: Path) -> None:
    with running_service(tmp_path / "state") as (service, tables):
        for first in range(0, KEYS, A_CALL):
            keys = range(first, first + A_CALL)
            changes = [Put(b"user-%d" % (key * 7919 % KEYS), b"%050d" % key) for key in keys]
            tables.apply(TABLE, b"w" * 16, first // A_CALL + 1, changes, timeout_s=60)
        service.kill()
        started = Calm()
        service.start()
        opening_s = started.calm_s

        def read_s() -> float:
            key = random.randrange(KEYS)
            begun = Calm()
            value = tables.read(TABLE, [b"user-%d" % key])[0]
            taken_s = begun.calm_s
            assert value is not None
            assert int(value.data) * 7919 % KEYS == key
            return taken_s

        read_s()
        reading_s = statistics.median(read_s() for _ in range(200))
        for call in range(100):
            sample = random.sample(range(KEYS), 1000)
            tables.apply(TABLE, b"x" * 16, call + 1, [Increment(b"count-%d" % key, 1) for key in sample])
        memory = psutil.Process(service.pid).memory_full_info().pss / 1e6
        began = Calm()
        tables.drop(TABLE)
        dropping_s = began.calm_s
        print(f"opening {opening_s:.2f} s, read {reading_s * 1000:.2f} ms, {memory:.0f} MB, drop {dropping_s:.2f} s")
        assert opening_s < 5
        assert reading_s < 0.05
        assert memory < 200
