"""A seeded sample of what official clients meet at a closed broker, by Python's; `make test-clients` has all of it."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pulsar
import pytest

from tests.clients.python_secured import play
from tests.clients.secured_brokers import open_site
from tests.clients.secured_cases import CASES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
REFUSED = 6
SEED = "MAGNETAR_CLOSED_SEED"


def test_each_kind_of_credentials_is_let_in_and_what_is_wrong_with_them_is_refused(tmp_path: Path) -> None:
    seed = int(os.environ.get(SEED) or random.randrange(1 << 32))
    at_once = {name: case for name, case in CASES.items() if not case.seconds}
    refused = sorted(name for name, case in at_once.items() if case.expected != "ok")
    names = set(random.Random(seed).sample(refused, REFUSED)) | (set(at_once) - set(refused))
    cases = {name: case for name, case in at_once.items() if name in names}
    with open_site("ours", tmp_path, is_public=False) as site:
        logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, str(tmp_path / "client.log"))
        seen = play(site.described(cases, "sample"), logger)
    wrong = {
        name: found for name, found in seen.items() if found[0] not in cases[name].outcomes("python", is_pulsar=False)
    }
    assert (set(seen), wrong) == (set(cases), {}), f"{SEED}={seed}"
